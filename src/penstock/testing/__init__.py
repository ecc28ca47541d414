"""What tests of workflows and of engines are made of: shipped, so that yours can use it too."""
