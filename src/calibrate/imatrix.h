#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <ballast/error.h>
#include <ballast/tensor.h>

#include "source/source.h"

namespace ballast {

// Whether a file is named as llama.cpp names its importance matrices: by a suffix that statistics of our own do not have.
bool is_imatrix(const std::string& path);

// An importance matrix of llama.cpp: for each matrix of a model the mean squares of its inputs. It has no means of the inputs.
struct Imatrix {
  // <name>.x_sqmean and <name>.count, as in a file of statistics. Names are those of GGUF, with [3] for expert 3.
  std::vector<Tensor> tensors;
  // What the model may call the weights of each name.
  std::map<std::string, std::vector<std::string>, std::less<>> names;
};

// Reads a GGUF file that llama-imatrix wrote. Error messages do not contain the path.
Result<Imatrix> read_imatrix(const Source& source);

}  // namespace ballast
