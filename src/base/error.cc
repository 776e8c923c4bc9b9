#include <ballast/error.h>

namespace ballast {

Error Error::at(std::string_view place) && {
  std::string prefixed;
  prefixed.reserve(place.size() + 2 + message.size());
  prefixed.append(place).append(": ").append(message);
  return {.code = code, .message = std::move(prefixed), .system_error = system_error};
}

}  // namespace ballast
