"""Watch, interrupt or kill programs at a chosen point of their work, never after a time."""

import re
import signal
import subprocess
import time


def kill_when_noted(command, journal):
    """Kill a run as soon as its journal has a record."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            if journal.exists() and journal.stat().st_size > 64:
                process.kill()
                break
            time.sleep(0.001)
    assert process.returncode == -signal.SIGKILL


def count_calls(command, call):
    """Run a command, which must succeed, and count how often it enters a system call."""
    strace = ["strace", "-f", "-e", f"trace={call}", "-e", "signal=none", "-o", "/dev/stderr"]
    result = subprocess.run([*strace, *map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 0, result.stderr
    return len(re.findall(rf"\b{call}\(", result.stderr))


def signal_at(command, call, number, name="KILL"):
    """Send a signal to a command when it enters a system call for the number-th time. Return the exit code."""
    strace = ["strace", "-f", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:signal={name}:when={number}"]
    return subprocess.run([*strace, *map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode


def spread(last, count):
    """Return at most `count` evenly spaced numbers from 1 to `last`."""
    return sorted({1 + (last - 1) * i // max(1, count - 1) for i in range(count)})


def wait_for_bytes(process, kind, count):
    """Wait until a process has read ("rchar") or written ("wchar") this many bytes."""
    while process.poll() is None:
        done = re.search(rf"{kind}: (\d+)", open(f"/proc/{process.pid}/io").read())
        if int(done[1]) >= count:
            return
        time.sleep(0.001)
    raise AssertionError(f"ended with {process.returncode} before it had {kind} {count}")


def peak_memory(command):
    """Run a command, which must succeed, and return its peak RssAnon in bytes."""
    peak = 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            status = re.search(r"RssAnon:\s+(\d+) kB", open(f"/proc/{process.pid}/status").read())
            peak = max(peak, int(status[1]) * 1024 if status else 0)
            time.sleep(0.002)
    assert process.returncode == 0
    return peak
