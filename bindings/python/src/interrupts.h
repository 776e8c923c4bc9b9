#pragma once

namespace ballast::python {

// Whether Ctrl-C came just now, for whoever waits for a server in whatever thread. In Python's main thread looks for it, too; the
// exception is then set, as it is by PyErr_CheckSignals().
bool was_interrupted();

// Someone has seen it.
void note_interrupt();

}  // namespace ballast::python
