"""What commands show on a terminal while they run."""

import io
import time

from clhist.cli import progress


def test_progress_says_compiling_until_the_first_step(monkeypatch):
    now, compiler = [100.0], [""]
    monkeypatch.setattr("clhist.cli.progress.monotonic", lambda: now[0])
    monkeypatch.setattr("clhist._core.opencl.program.compiler", lambda: compiler[0])
    monkeypatch.delenv("PYOPENCL_NO_CACHE", raising=False)
    line = progress.Progress("steps", 11)
    now[0] += 30
    assert line.text() == "steps · compiling · 30 s so far"
    compiler[0] = "PoCL"
    assert line.text() == "steps · compiling for PoCL, once per machine · 30 s so far"
    assert progress.Progress("compiling").text() == "compiling for PoCL, once per machine · 0 s so far"
    monkeypatch.setenv("PYOPENCL_NO_CACHE", "1")
    assert line.text() == "steps · compiling for PoCL · 30 s so far"
    line.update(1, "one")
    now[0] += 10
    line.update(2, "three")
    assert line.text() == "steps · 27% · three · about 40 s left · 40 s so far"  # 5 s a step, whatever the first took


def test_progress_of_several_stages(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("clhist._core.opencl.program.compiler", lambda: "")
    monkeypatch.setattr("clhist.cli.progress.monotonic", lambda: now[0])
    line = progress.Progress("choosing", 10)
    line.update(5)
    line.stage("checking", compiles=False)
    now[0] += 3
    assert line.text() == "checking · 3 s so far"
    line.stage("iterations")
    assert line.text() == "iterations · compiling · 3 s so far"


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    """Stands still until it is moved; what draws asks it for the time at every tick, however late that comes."""

    def __init__(self):
        self.now, self.asked = 100.0, 0

    def __call__(self):
        self.asked += 1
        return self.now

    def ticks(self):
        """Wait until something was drawn, or would have been, a few times."""
        enough, deadline = self.asked + 10, time.monotonic() + 60
        while self.asked < enough:
            assert time.monotonic() < deadline, "nothing asks for the time"
            time.sleep(0.001)


def test_a_command_that_is_silent_says_so_after_a_second(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    monkeypatch.setattr(progress, "_TICK", 0.001)
    monkeypatch.setattr(progress, "monotonic", clock)
    with progress.Progress("gromacs", compiles=False, delay=1) as line:
        clock.now += 0.9
        clock.ticks()
        assert terminal.getvalue() == ""
        line.stage("pairs", compiles=False)
        clock.now += 0.2
        clock.ticks()
        assert "pairs · 1 s so far" in terminal.getvalue()
        with progress.Progress("versions", 3) as inner:
            inner.update(1, "first")
            clock.ticks()
            assert "versions · 33% · first" in terminal.getvalue()
            before = len(terminal.getvalue())
            clock.now += 5
            clock.ticks()
            assert "versions" in terminal.getvalue()[before:]
            assert "pairs" not in terminal.getvalue()[before:]
        with progress.quiet_terminal():
            terminal.write("result")
    assert "\r\x1b[Kresult" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")
