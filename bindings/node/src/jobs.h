#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include <napi.h>

#include <ballast/error.h>
#include <ballast/work.h>

namespace ballast::node {

using Finish = std::function<Napi::Value(Napi::Env)>;  // makes what the promise resolves to, in JavaScript's thread

// Work that JavaScript has a promise for. It runs in another thread and sees nothing of JavaScript there.
class Job {
 public:
  using Work = std::function<Result<Finish>(Job&)>;

  Job(Napi::Env env, Work work, const Napi::Value& on_progress, const std::vector<Napi::Value>& held);

  void stop();
  bool is_stopped() const { return is_stopped_; }

  // For the core, in any thread. JavaScript is told the latest there is when it has time, and waited for only when all is done:
  // what it says to the last report, before the output has its name, counts as well.
  WorkOptions work(unsigned threads = 0, std::uint64_t memory_limit = 0);

 private:
  friend class Jobs;
  struct Report {
    std::uint64_t done;
    std::uint64_t total;
    std::string what;
  };

  void run();
  bool report(std::uint64_t done, std::uint64_t total, std::string_view what);
  void tell_progress(Napi::Env env);
  void settle(Napi::Env env);

  Work work_;
  std::optional<Result<Finish>> result_;
  std::atomic<bool> is_stopped_ = false;
  std::function<void()> ask_to_tell_;  // has tell_progress() called in JavaScript's thread
  std::mutex mutex_;
  std::condition_variable told_;
  std::optional<Report> latest_;  // that JavaScript was not told yet
  bool is_telling_ = false;
  std::thread thread_;  // of long work

  // Touched in JavaScript's thread only.
  Napi::Promise::Deferred deferred_;
  Napi::FunctionReference on_progress_;
  std::vector<Napi::Reference<Napi::Value>> held_;
};

// All jobs of one environment: the main thread's, or a worker's.
class Jobs {
 public:
  enum class Length {
    kShort,   // shares a few threads
    kRemote,  // likewise, but waits for servers: others must not wait with it
    kLong,    // has its own
  };

  explicit Jobs(Napi::Env env);
  Jobs(const Jobs&) = delete;
  Jobs& operator=(const Jobs&) = delete;

  // Gives {promise, cancel}. `on_progress` is called with (done, total, what) and may return false to stop; `held` lives until
  // the work is over.
  Napi::Value start(Napi::Env env, Length length, Job::Work work, const Napi::Value& on_progress,
                    const std::vector<Napi::Value>& held = {});

  // Stops what is running and waits for it, since nothing may run on when the process exits or, in a worker, this code is
  // unloaded. Nothing runs after that. May be called again.
  void shut_down();

 private:
  using Message = std::function<void(Napi::Env)>;

  // Threads that come to be with the work for them.
  struct Pool {
    std::size_t most;
    std::vector<std::thread> threads;
    std::deque<std::shared_ptr<Job>> queue;
    std::size_t idle = 0;
    std::condition_variable wake;
  };

  void begin(const std::shared_ptr<Job>& job, Length length);
  void begin(const std::shared_ptr<Job>& job, Pool& pool);
  void serve(Pool& pool);
  void run(const std::shared_ptr<Job>& job);
  void post(Message message);
  void handle_one(Napi::Env env);

  napi_threadsafe_function wake_javascript_ = nullptr;
  std::unordered_set<std::shared_ptr<Job>> running_;  // JavaScript's thread only

  std::mutex mutex_;
  Pool local_{.most = 8};
  Pool remote_{.most = 64};
  std::deque<Message> messages_;
  bool is_closing_ = false;
};

// Runs `work`, a function of Job& to Result<T>, and resolves to what `describe`, a function of Napi::Env and T&, makes of it.
template <class Work, class Describe>
Job::Work job_of(Work work, Describe describe) {
  return [work = std::move(work), describe = std::move(describe)](Job& job) -> Result<Finish> {
    auto made = work(job);
    if (!made) return std::unexpected(std::move(made.error()));
    auto held = std::make_shared<typename decltype(made)::value_type>(*std::move(made));
    return [held, describe](Napi::Env env) -> Napi::Value { return describe(env, *held); };
  };
}

// The same for work that gives nothing.
template <class Work>
Job::Work job_of(Work work) {
  return [work = std::move(work)](Job& job) -> Result<Finish> {
    if (auto made = work(job); !made) return std::unexpected(std::move(made.error()));
    return [](Napi::Env env) { return env.Undefined(); };
  };
}

}  // namespace ballast::node
