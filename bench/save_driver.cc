// Saves the tensors of a model from memory and tells how long that took, for save_vs_safetensors.py.
//   save_driver MODEL
// Loads the model and answers each line `OUT sync|nosync` of standard input with the nanoseconds that saving to OUT took.

#include <chrono>
#include <iostream>
#include <string>

#include <ballast/load.h>
#include <ballast/model.h>
#include <ballast/sink.h>

int main(int count, char** arguments) {
  const auto model = ballast::Model::open(count > 1 ? arguments[1] : "");
  if (!model) {
    std::cerr << model.error().message << '\n';
    return 1;
  }
  const auto loaded = model->load_all();
  if (!loaded) {
    std::cerr << loaded.error().message << '\n';
    return 1;
  }
  std::cout << "ready" << '\n' << std::flush;
  for (std::string path, mode; std::cin >> path >> mode;) {
    const auto start = std::chrono::steady_clock::now();
    const auto saved = ballast::save_tensors(path, loaded->tensors(), {.sync = mode == "sync"});
    const std::chrono::nanoseconds spent = std::chrono::steady_clock::now() - start;
    if (!saved) {
      std::cerr << saved.error().message << '\n';
      return 1;
    }
    std::cout << spent.count() << '\n' << std::flush;
  }
}
