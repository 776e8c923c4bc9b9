#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace ballast {

// Calls work(worker, i) for every i below `count`, on `threads` threads (0: one per core), in no order. `worker` numbers the
// thread, for buffers of its own. A call that returns false stops the rest.
template <class Work>
void parallel_for(std::size_t count, unsigned threads, Work&& work) {
  if (threads == 0) threads = std::max(1U, std::thread::hardware_concurrency());
  threads = static_cast<unsigned>(std::min<std::size_t>(threads, count));
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> stopped = false;
  const auto run = [&](unsigned worker) {
    for (std::size_t i = next++; i < count && !stopped; i = next++) {
      if (!work(worker, i)) stopped = true;
    }
  };
  std::vector<std::jthread> others;
  for (unsigned worker = 1; worker < threads; ++worker) others.emplace_back(run, worker);
  if (threads > 0) run(0);
}

}  // namespace ballast
