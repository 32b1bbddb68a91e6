"""Device profiles as TOML; clhist.hardware.profile reads them."""
