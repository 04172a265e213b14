"""How the pipeline's tables scale: a generated history with known answers, on one core and on two."""
