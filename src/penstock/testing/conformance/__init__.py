"""What every implementation of a port must do, as sentences that can be checked against any of them."""
