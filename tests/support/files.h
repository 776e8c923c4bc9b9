#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <stdlib.h>
#include <sys/fsuid.h>
#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ballast/dtype.h>
#include <ballast/error.h>

namespace ballast::test {

// A temporary directory, removed with its content. Other users may enter it, for tests of file permissions.
class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "ballast-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = pattern;
    std::filesystem::permissions(path_, std::filesystem::perms{0755});
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  std::string path(std::string_view name) const { return path_ + "/" + std::string(name); }

  // Writes a file, creates its folders if needed, and returns its path.
  std::string write(std::string_view name, std::string_view content) const {
    const std::filesystem::path file(path(name));
    std::filesystem::create_directories(file.parent_path());
    std::ofstream out(file, std::ios::binary);
    out.write(content.data(), static_cast<std::streamsize>(content.size()));
    if (!out.flush()) throw std::runtime_error("cannot write " + file.string());
    return file.string();
  }

 private:
  std::string path_;
};

// While it lives, this thread has no root permissions on files.
class WithoutPrivilege {
 public:
  WithoutPrivilege() {
    if (::geteuid() == 0) ::setfsuid(kNobody);
  }
  WithoutPrivilege(const WithoutPrivilege&) = delete;
  WithoutPrivilege& operator=(const WithoutPrivilege&) = delete;
  ~WithoutPrivilege() {
    if (::geteuid() == 0) ::setfsuid(0);
  }

  // False if root cannot switch to another user, as in some containers.
  bool effective() const { return ::geteuid() != 0 || ::setfsuid(kNobody) == static_cast<int>(kNobody); }

 private:
  static constexpr uid_t kNobody = 65534;
};

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

inline std::string to_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// All bytes of a file.
inline std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The bytes of some values, little endian.
template <class T>
std::string raw(std::initializer_list<T> values) {
  static_assert(std::endian::native == std::endian::little);
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.begin(), bytes.size());
  return bytes;
}

// A SafeTensors file with `length` as the header length, right or wrong.
inline std::string safetensors_claiming(std::uint64_t length, std::string_view header, std::string_view data = {}) {
  return raw({length}).append(header).append(data);
}

inline std::string safetensors(std::string_view header, std::string_view data = {}) {
  return safetensors_claiming(header.size(), header, data);
}

// A SafeTensors file of one tensor, `t`.
inline std::string one_tensor(DType dtype, std::string_view shape, std::string_view data) {
  return safetensors(
      fmt::format(R"({{"t":{{"dtype":"{}","shape":{},"data_offsets":[0,{}]}}}})", ballast::name(dtype), shape, data.size()),
      data);
}

// A file of one-byte tensors with these names, in this order.
inline std::string safetensors_of(const std::vector<std::string>& names) {
  std::string header;
  for (std::size_t i = 0; i < names.size(); ++i) {
    header +=
        fmt::format(R"({}"{}":{{"dtype":"U8","shape":[1],"data_offsets":[{},{}]}})", i == 0 ? "{" : ",", names[i], i, i + 1);
  }
  return safetensors(header + "}", std::string(names.size(), '\7'));
}

// EXPECT_TRUE(fails(result, Errc::kCorrupt, "the whole message"));
template <class T>
testing::AssertionResult fails(const Result<T>& result, Errc code, std::string_view message) {
  if (result) return testing::AssertionFailure() << "succeeded, expected " << name(code) << ": " << message;
  if (result.error().code == code && result.error().message == message) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "failed with\n  " << name(result.error().code) << ": " << result.error().message
                                     << "\nexpected\n  " << name(code) << ": " << message;
}

}  // namespace ballast::test
