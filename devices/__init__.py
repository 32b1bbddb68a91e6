"""Device profiles as TOML; clhist.profile reads them."""
