"""`clhist plan` on the device that is here."""

import json

from click.testing import CliRunner

from clhist import default_queue, device_profile
from clhist.cli.main import main


def run(*arguments):
    return CliRunner().invoke(main, ["plan", *arguments])


def plan(*arguments):
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def test_default_device():
    device = default_queue().device
    found = plan("-n", "1M", "-H", "100")
    assert found["profile"] == device_profile(device).name
    assert found["memory_budget"] > 0
