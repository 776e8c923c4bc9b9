// inspect_model PATH: lists the tensors of a model, counts its parameters, and prints the first value of its final norm.

#include <cstdint>
#include <iostream>

#include <ballast/model.h>

namespace {

int fail(const ballast::Error& error) {
  std::cerr << error.message << '\n';
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  const auto model = ballast::Model::open(argc > 1 ? argv[1] : ".");
  if (!model) return fail(model.error());
  for (const ballast::TensorInfo& tensor : model->tensors()) {
    std::cout << tensor.name << ' ' << ballast::name(tensor.dtype);
    for (const std::uint64_t dim : tensor.shape) std::cout << ' ' << dim;
    std::cout << '\n';
  }
  const auto norm = model->read<float>("model.norm.weight");  // converted from BF16, F16 or F32
  if (!norm) return fail(norm.error());

  std::cout << model->parameter_count() << " parameters\n";
  std::cout << "the norm begins with " << norm->front() << '\n';
}
