"""Programs that are watched while they run."""

import re
import signal
import subprocess
import time


def kill_when_noted(command, journal):
    """Kills a run as soon as its journal has something beside its key."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            if journal.exists() and journal.stat().st_size > 64:
                process.kill()
                break
            time.sleep(0.001)
    assert process.returncode == -signal.SIGKILL


def peak_memory(command):
    """The most RssAnon, in bytes, that a run which must not fail was seen to have."""
    peak = 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            status = re.search(r"RssAnon:\s+(\d+) kB", open(f"/proc/{process.pid}/status").read())
            peak = max(peak, int(status[1]) * 1024 if status else 0)
            time.sleep(0.002)
    assert process.returncode == 0
    return peak
