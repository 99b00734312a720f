"""Own data in the forms that users have it in: one reader a form, and one registry of them."""
