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

using Finish = std::function<Napi::Value(Napi::Env)>;  // makes the value that the promise resolves to, in JavaScript's thread

// Work with a promise in JavaScript. It runs in another thread, where it must not call into JavaScript.
class Job {
 public:
  using Work = std::function<Result<Finish>(Job&)>;

  Job(Napi::Env env, Work work, const Napi::Value& on_progress, const std::vector<Napi::Value>& held);

  void stop();
  bool is_stopped() const { return is_stopped_; }

  // For the core, in any thread. JavaScript gets the latest progress when its event loop is free. Only the last report waits for
  // the callback, so that returning false still cancels before the output gets its name.
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
  void report_progress(Napi::Env env);
  void settle(Napi::Env env);

  Work work_;
  std::optional<Result<Finish>> result_;
  std::atomic<bool> is_stopped_ = false;
  std::function<void()> request_report_;  // schedules report_progress() in JavaScript's thread
  std::mutex mutex_;
  std::condition_variable reported_;
  std::optional<Report> latest_;  // not reported to JavaScript yet
  bool is_reporting_ = false;
  std::thread thread_;  // of long work

  // Used in JavaScript's thread only.
  Napi::Promise::Deferred deferred_;
  Napi::FunctionReference on_progress_;
  std::vector<Napi::Reference<Napi::Value>> held_;
};

// The jobs of one environment, that is, of the main thread or of a worker.
class Jobs {
 public:
  enum class Length {
    kShort,   // runs in a pool of a few threads
    kRemote,  // waits for servers, in a pool of its own so that local work does not wait
    kLong,    // has its own thread
  };

  explicit Jobs(Napi::Env env);
  Jobs(const Jobs&) = delete;
  Jobs& operator=(const Jobs&) = delete;

  // Returns {promise, cancel}. `on_progress` is called with (done, total, what) and may return false to cancel. The values in
  // `held` stay alive until the work has ended.
  Napi::Value start(Napi::Env env, Length length, Job::Work work, const Napi::Value& on_progress,
                    const std::vector<Napi::Value>& held = {});

  // Cancels all jobs and waits for them: nothing may run when the process exits or when this code is unloaded with a worker. No
  // job starts afterwards. May be called more than once.
  void shut_down();

 private:
  using Message = std::function<void(Napi::Env)>;

  // Threads are started when there is work for them.
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

// Runs `work(Job&)`, which returns a Result<T>, and resolves to `describe(Napi::Env, T&)`.
template <class Work, class Describe>
Job::Work job_of(Work work, Describe describe) {
  return [work = std::move(work), describe = std::move(describe)](Job& job) -> Result<Finish> {
    auto made = work(job);
    if (!made) return std::unexpected(std::move(made.error()));
    auto held = std::make_shared<typename decltype(made)::value_type>(*std::move(made));
    return [held, describe](Napi::Env env) -> Napi::Value { return describe(env, *held); };
  };
}

// The same for work without a result.
template <class Work>
Job::Work job_of(Work work) {
  return [work = std::move(work)](Job& job) -> Result<Finish> {
    if (auto made = work(job); !made) return std::unexpected(std::move(made.error()));
    return [](Napi::Env env) { return env.Undefined(); };
  };
}

}  // namespace ballast::node
