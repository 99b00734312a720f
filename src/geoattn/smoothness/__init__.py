"""How much attention can amplify: local Lipschitz constants, bounds, adversarial tokens, mean field, growth."""
