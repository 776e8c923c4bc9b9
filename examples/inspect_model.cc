// inspect_model PATH: lists the tensors of a model, counts its parameters, and looks at the values of its final norm.

#include <cstdint>
#include <iostream>

#include <ballast/model.h>

int main(int argc, char** argv) {
  const auto model = ballast::Model::open(argc > 1 ? argv[1] : ".");
  if (!model) {
    std::cerr << model.error().message << '\n';
    return 1;
  }
  for (const ballast::TensorInfo& tensor : model->tensors()) {
    std::cout << tensor.name << ' ' << ballast::name(tensor.dtype);
    for (const std::uint64_t dim : tensor.shape) std::cout << ' ' << dim;
    std::cout << '\n';
  }
  std::cout << model->parameter_count() << " parameters\n";

  const auto norm = model->read<float>("model.norm.weight");  // from BF16, F16 or F32
  if (!norm) {
    std::cerr << norm.error().message << '\n';
    return 1;
  }
  std::cout << "the norm begins with " << norm->front() << '\n';
}
