#pragma once

namespace ballast::python {

// Returns whether Ctrl-C was pressed just now, for threads that wait for a server. In Python's main thread it also checks for
// signals and sets the exception, as PyErr_CheckSignals() does.
bool was_interrupted();

// Records that Ctrl-C was seen.
void note_interrupt();

}  // namespace ballast::python
