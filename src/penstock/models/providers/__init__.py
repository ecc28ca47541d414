"""Who answers: providers over HTTP, each a dialect spoken to an endpoint, and providers in this process."""
