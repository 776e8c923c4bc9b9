#include <ballast/error.h>

namespace ballast {

std::string_view name(Errc code) {
  switch (code) {
    case Errc::kIo: return "ReadError";
    case Errc::kWrite: return "WriteError";
    case Errc::kCorrupt: return "CorruptError";
    case Errc::kUnsupported: return "UnsupportedError";
    case Errc::kNotFound: return "MissingError";
    case Errc::kInvalidArgument: return "ArgumentError";
    case Errc::kBelowMinimum: return "BelowMinimumError";
    case Errc::kCancelled: return "CancelledError";
  }
  return "BallastError";
}

Error Error::at(std::string_view place) && {
  std::string prefixed;
  prefixed.reserve(place.size() + 2 + message.size());
  prefixed.append(place).append(": ").append(message);
  return {.code = code, .message = std::move(prefixed), .system_error = system_error};
}

}  // namespace ballast
