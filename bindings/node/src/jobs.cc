#include "jobs.h"

#include <algorithm>
#include <exception>
#include <new>
#include <system_error>

#include "errors.h"

namespace ballast::node {
namespace {

Error cancelled() { return {.code = Errc::kCancelled, .message = "cancelled"}; }

}  // namespace

Job::Job(Napi::Env env, Work work, const Napi::Value& on_progress, const std::vector<Napi::Value>& held)
    : work_(std::move(work)), deferred_(env) {
  if (on_progress.IsFunction()) on_progress_ = Napi::Persistent(on_progress.As<Napi::Function>());
  for (const Napi::Value& value : held) held_.push_back(Napi::Reference<Napi::Value>::New(value, 1));
}

WorkOptions Job::work(unsigned threads, std::uint64_t memory_limit) {
  return {
      .threads = threads,
      .memory_limit = memory_limit,
      .progress = [this](std::uint64_t done, std::uint64_t total, std::string_view what) { return report(done, total, what); },
      .stop = [this] { return is_stopped(); }};
}

bool Job::report(std::uint64_t done, std::uint64_t total, std::string_view what) {
  if (total == 0 || !request_report_) return !is_stopped_;  // a total of 0 means that it is not known yet
  std::unique_lock lock(mutex_);
  if (!latest_) request_report_();
  latest_ = {.done = done, .total = total, .what = std::string(what)};
  if (done == total) {
    reported_.wait(lock, [&] { return is_stopped_ || (!latest_ && !is_reporting_); });
  }
  return !is_stopped_;
}

void Job::stop() {
  {
    const std::scoped_lock lock(mutex_);
    is_stopped_ = true;
  }
  reported_.notify_all();
}

void Job::run() {
  try {
    result_ = is_stopped_ ? std::unexpected(cancelled()) : work_(*this);
  } catch (const std::bad_alloc&) {
    result_ = std::unexpected(Error{.code = Errc::kUnsupported, .message = "not enough memory"});
  } catch (const std::exception& error) {
    result_ = std::unexpected(Error{.code = Errc::kUnsupported, .message = error.what()});
  }
  work_ = nullptr;
}

void Job::report_progress(Napi::Env env) {
  std::optional<Report> report;
  {
    const std::scoped_lock lock(mutex_);
    report.swap(latest_);
    is_reporting_ = true;
  }
  const Napi::Value result =
      on_progress_.Call({Napi::Number::New(env, static_cast<double>(report->done)),
                         Napi::Number::New(env, static_cast<double>(report->total)), Napi::String::New(env, report->what)});
  if (env.IsExceptionPending()) env.GetAndClearPendingException();
  // Empty only while the environment is shutting down.
  if (result.IsEmpty() || (result.IsBoolean() && !result.As<Napi::Boolean>().Value())) stop();
  {
    const std::scoped_lock lock(mutex_);
    is_reporting_ = false;
  }
  reported_.notify_all();
}

void Job::settle(Napi::Env env) {
  if (thread_.joinable()) thread_.join();
  on_progress_.Reset();
  const Napi::Value made = *result_ ? (**result_)(env) : error_value(env, result_->error());
  if (env.IsExceptionPending()) {
    deferred_.Reject(env.GetAndClearPendingException().Value());
  } else if (*result_) {
    deferred_.Resolve(made);
  } else {
    deferred_.Reject(made);
  }
  result_.reset();
  held_.clear();
}

Jobs::Jobs(Napi::Env env) {
  const auto handle = [](napi_env called, napi_value, void* context, void*) {
    if (called != nullptr) static_cast<Jobs*>(context)->handle_one(called);
  };
  napi_create_threadsafe_function(env, nullptr, nullptr, Napi::String::New(env, "ballast"), 0, 1, nullptr, nullptr, this, handle,
                                  &wake_javascript_);
  napi_unref_threadsafe_function(env, wake_javascript_);  // does not keep an idle process alive
}

Napi::Value Jobs::start(Napi::Env env, Length length, Job::Work work, const Napi::Value& on_progress,
                        const std::vector<Napi::Value>& held) {
  const auto job = std::make_shared<Job>(env, std::move(work), on_progress, held);
  if (!job->on_progress_.IsEmpty()) {
    job->request_report_ = [this, weak = std::weak_ptr(job)] {
      post([job = weak.lock()](Napi::Env called) { job->report_progress(called); });
    };
  }
  auto made = Napi::Object::New(env);
  made.Set("promise", job->deferred_.Promise());
  made.Set("cancel", Napi::Function::New(env, [job](const Napi::CallbackInfo&) { job->stop(); }));
  if (running_.empty()) napi_ref_threadsafe_function(env, wake_javascript_);
  running_.insert(job);
  begin(job, length);
  return made;
}

void Jobs::begin(const std::shared_ptr<Job>& job, Length length) {
  try {
    if (length == Length::kLong) {
      job->thread_ = std::thread([this, job] { run(job); });
    } else {
      begin(job, length == Length::kRemote ? remote_ : local_);
    }
  } catch (const std::system_error& error) {
    job->work_ = [message = std::string(error.what())](Job&) -> Result<Finish> {
      return std::unexpected(Error{.code = Errc::kUnsupported, .message = "cannot start a thread: " + message});
    };
    run(job);
  }
}

void Jobs::begin(const std::shared_ptr<Job>& job, Pool& pool) {
  const std::scoped_lock lock(mutex_);
  if (pool.queue.size() >= pool.idle && pool.threads.size() < pool.most) {
    try {
      pool.threads.emplace_back([this, &pool] { serve(pool); });
    } catch (const std::system_error&) {
      if (pool.threads.empty()) throw;  // otherwise the existing threads run it
    }
  }
  pool.queue.push_back(job);
  pool.wake.notify_one();
}

void Jobs::serve(Pool& pool) {
  std::unique_lock lock(mutex_);
  while (!is_closing_) {
    if (pool.queue.empty()) {
      ++pool.idle;
      pool.wake.wait(lock, [&] { return is_closing_ || !pool.queue.empty(); });
      --pool.idle;
      continue;
    }
    auto job = std::move(pool.queue.front());
    pool.queue.pop_front();
    lock.unlock();
    run(job);
    job.reset();
    lock.lock();
  }
}

void Jobs::run(const std::shared_ptr<Job>& job) {
  job->run();
  post([this, job](Napi::Env env) {
    job->settle(env);
    running_.erase(job);
    if (running_.empty()) napi_unref_threadsafe_function(env, wake_javascript_);
  });
}

void Jobs::post(Message message) {
  {
    const std::scoped_lock lock(mutex_);
    if (is_closing_) return;
    messages_.push_back(std::move(message));
  }
  napi_call_threadsafe_function(wake_javascript_, nullptr, napi_tsfn_nonblocking);
}

void Jobs::handle_one(Napi::Env env) {
  Message message;
  {
    const std::scoped_lock lock(mutex_);
    if (messages_.empty()) return;
    message = std::move(messages_.front());
    messages_.pop_front();
  }
  message(env);
}

void Jobs::shut_down() {
  for (const auto& job : running_) job->stop();
  {
    const std::scoped_lock lock(mutex_);
    is_closing_ = true;
  }
  for (Pool* const pool : {&local_, &remote_}) {
    pool->wake.notify_all();
    for (std::thread& thread : pool->threads) thread.join();
    pool->threads.clear();
    pool->queue.clear();
  }
  for (const auto& job : running_) {
    if (job->thread_.joinable()) job->thread_.join();
    job->on_progress_.Reset();
    job->held_.clear();
  }
  messages_.clear();
  running_.clear();
}

}  // namespace ballast::node
