"""The servers, as their users meet them."""
