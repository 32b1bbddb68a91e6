"""Device profiles as TOML; clhist.hardware.profile_files reads them."""
