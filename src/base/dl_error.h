#pragma once

#include <string>

namespace ballast {

// Why the last dlopen() or dlsym() of this thread failed, safe to print.
std::string last_dl_error();

}  // namespace ballast
