#include "spelling.h"

namespace ballast::cli {
namespace {

bool ends_word(std::string_view rest) { return rest.empty() || std::string_view(" :,;?)").contains(rest.front()); }

// The length of the quoted name at the start of `text`; escaped quotes do not end it.
std::size_t quoted_length(std::string_view text) {
  for (std::size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '\'') {
      return i + 1;
    }
  }
  return 1;
}

std::string_view first_word(std::string_view text) {
  std::size_t size = 0;
  while (!ends_word(text.substr(size))) ++size;
  return text.substr(0, size);
}

}  // namespace

std::string spelled(std::string_view message, const Spelling& spelling) {
  std::string out;
  while (!message.empty()) {
    const bool begins_word = out.empty() || out.back() == ' ' || out.back() == '(';
    const bool is_of_tensor = out.ends_with("': ") && out.contains("tensor '");  // its dtype, not an option
    const bool begins_clause = !is_of_tensor && (out.empty() || out.ends_with(": ") || out.ends_with("(") ||
                                                 out.ends_with("give ") || out.ends_with("leave out "));
    const std::string_view word = begins_word ? first_word(message) : std::string_view();
    const auto found = spelling.find(word);
    if (found != spelling.end() && (begins_clause || word.contains('_'))) {
      out += found->second;
      message.remove_prefix(word.size());
      continue;
    }
    const std::size_t taken = begins_word && message.front() == '\'' ? quoted_length(message) : 1;
    out += message.substr(0, taken);
    message.remove_prefix(taken);
  }
  return out;
}

std::vector<std::string> spelled(std::vector<std::string> messages, const Spelling& spelling) {
  for (std::string& message : messages) message = spelled(message, spelling);
  return messages;
}

Exit report(const Error& error, const Spelling& spelling) {
  Error typed = error;
  typed.message = spelled(error.message, spelling);
  return report(typed);
}

}  // namespace ballast::cli
