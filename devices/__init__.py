"""Device profiles as TOML; clhist._core.devices.profile_files reads them."""
