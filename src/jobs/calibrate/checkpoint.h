#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ballast/error.h>

#include "calibrate/forward/hidden_states.h"
#include "calibrate/forward/input_recorder.h"

namespace ballast {

// The folder beside a statistics file in which its parts wait for the last one: a SafeTensors file for each layer, and the hidden
// states after the last of them if the work can be resumed.
class Checkpoint {
 public:
  // Removes parts of other work, and without `resume` all of them.
  static Result<Checkpoint> open(const std::string& path, std::string key, bool resume);
  Checkpoint(Checkpoint&&) = default;
  Checkpoint& operator=(Checkpoint&&) = delete;
  ~Checkpoint();

  // Whether an earlier run has written the statistics file itself.
  bool is_complete() const { return complete_; }
  // Layers that an earlier run has finished.
  std::uint64_t finished() const { return finished_; }
  // The file of one layer; the one after the last is of the output layer.
  std::string part(std::uint64_t layer) const;

  Result<void> load(std::uint64_t tokens, HiddenStates& hidden) const;
  Result<void> save_part(std::uint64_t layer, const InputRecorder& recorder) const;
  // Of a layer that is recorded in several passes: saves what one of them recorded, and makes the part of all of them.
  Result<void> save_piece(std::uint64_t layer, std::uint64_t pass, const InputRecorder& recorder) const;
  Result<void> join_pieces(std::uint64_t layer, std::uint64_t passes) const;
  // Marks all layers up to this one as finished.
  Result<void> save_hidden(std::uint64_t layer, std::uint64_t tokens, std::uint64_t window, const HiddenStates& hidden) const;

  // Joins the parts of all layers to the statistics file, and removes the folder.
  Result<void> join(std::uint64_t layers, bool sync);

 private:
  Checkpoint(std::string path, std::string key, bool resume) : path_(std::move(path)), key_(std::move(key)), resume_(resume) {}
  std::string folder() const { return path_ + ".incomplete"; }
  std::string piece(std::uint64_t layer, std::uint64_t pass) const;
  std::string hidden_path() const { return folder() + "/hidden.safetensors"; }

  std::string path_;
  std::string key_;
  bool resume_;
  bool complete_ = false;
  std::uint64_t finished_ = 0;
};

}  // namespace ballast
