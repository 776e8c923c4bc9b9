#include "format/parquet/arrow_error.h"

#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>

#include <parquet/exception.h>

#include <ballast/text.h>

namespace ballast::parquet {
namespace {

class ErrorDetail final : public arrow::StatusDetail {
 public:
  explicit ErrorDetail(Error error) : error_(std::move(error)) {}
  const char* type_id() const override { return "ballast::Error"; }
  std::string ToString() const override { return error_.message; }  // NOLINT(readability-identifier-naming): Arrow's name
  const Error& error() const { return error_; }

 private:
  Error error_;
};

const Error kNoMemory{.code = Errc::kUnsupported, .message = "out of memory"};

Error to_error(const arrow::Status& status, Errc otherwise) {
  if (const auto* const detail = dynamic_cast<const ErrorDetail*>(status.detail().get())) return detail->error();
  if (status.IsOutOfMemory()) return kNoMemory;
  return {.code = status.IsNotImplemented() ? Errc::kUnsupported : otherwise, .message = escape(status.message())};
}

}  // namespace

arrow::Status to_status(Error error) {
  std::string message = error.message;
  return {arrow::StatusCode::IOError, std::move(message), std::make_shared<ErrorDetail>(std::move(error))};
}

Error current_error(Errc otherwise) {
  try {
    throw;
  } catch (const ::parquet::ParquetStatusException& exception) {
    return to_error(exception.status(), otherwise);
  } catch (const std::bad_alloc&) {
    return kNoMemory;
  } catch (const std::exception& exception) {
    const std::string_view what = exception.what();
    return {.code = what.starts_with("Not yet implemented") ? Errc::kUnsupported : otherwise, .message = escape(what)};
  } catch (...) {
    return {.code = otherwise, .message = "Arrow failed without an error message"};
  }
}

}  // namespace ballast::parquet
