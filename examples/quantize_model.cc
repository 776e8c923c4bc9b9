// quantize_model MODEL OUT: quantizes a model to 4 bits for MLX, and says which layer suffers most.

#include <algorithm>
#include <iostream>

#include <ballast/model.h>
#include <ballast/quantize.h>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: quantize_model MODEL OUT\n";
    return 2;
  }
  const auto model = ballast::Model::open(argv[1]);
  if (!model) {
    std::cerr << model.error().message << '\n';
    return 1;
  }
  ballast::QuantizeOptions options;
  options.config.format = ballast::QuantizeFormat::kMlx;
  options.config.bit_width = 4;
  options.config.group_size = 64;
  const auto done = ballast::quantize_model(*model, argv[2], options);
  if (!done) {
    std::cerr << done.error().message << '\n';
    return 1;
  }
  std::cout << done->layers.size() << " layers, " << done->bits_per_weight << " bits per weight\n";
  if (done->layers.empty()) return 0;

  const auto worst =
      std::ranges::max_element(done->layers, {}, [](const ballast::LayerReport& layer) { return layer.quality.relative_rmse; });
  std::cout << "the worst is " << worst->name << ": cosine " << worst->quality.cosine_similarity << ", relative RMSE "
            << worst->quality.relative_rmse << '\n';
}
