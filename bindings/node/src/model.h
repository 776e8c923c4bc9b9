#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <napi.h>

#include <ballast/model.h>

#include "jobs.h"

namespace ballast::node {

// The jobs that use a model. They share its requests to a server, which are cancelled when all of the jobs are.
class Users {
 public:
  void add(const Job& job);
  void remove(const Job& job);
  bool are_all_stopped() const;

 private:
  mutable std::mutex mutex_;
  std::vector<const Job*> jobs_;
};

// An open model with writable views. Arrays and jobs keep it open.
struct Opened {
  std::shared_ptr<Users> users;
  Model model;

  Jobs::Length read_length() const;  // for work that reads a part of it
};

// The model that a job reads: an open one, or a path that the job opens.
struct Source {
  std::variant<std::string, std::shared_ptr<const Opened>> place;

  // The path; null for an open model.
  const std::string* path() const { return std::get_if<std::string>(&place); }
  // Runs `work(const Model&)`, which returns a Result, as a user of the model. The weights of a path are decoded.
  template <class Work>
  auto with(Job& job, const Work& work) const -> std::invoke_result_t<Work, const Model&>;
};

struct OpenRequest {
  std::string path;
  bool pretrained = false;     // opens it with load_pretrained()
  bool decode = false;         // decodes quantized weights
  std::optional<DType> dtype;  // of decoded weights; default: the original
  OpenOptions options;
};

Result<std::shared_ptr<const Opened>> open_as(Job& job, OpenRequest request);

// The object in JavaScript. Methods that start a job return {promise, cancel}.
class NativeModel : public Napi::ObjectWrap<NativeModel> {
 public:
  static void define(Napi::Env env, Napi::Object& exports);
  static Source source_of(const Napi::Value& value);  // a path or a native model

  explicit NativeModel(const Napi::CallbackInfo& info);

 private:
  static Napi::Value open(const Napi::CallbackInfo& info);
  static Napi::Value components(const Napi::CallbackInfo& info);

  // These throw if the model is closed.
  template <Napi::Value (NativeModel::*kMethod)(const Napi::CallbackInfo&)>
  Napi::Value when_open(const Napi::CallbackInfo& info);
  Napi::Value summary(const Napi::CallbackInfo& info);
  Napi::Value names(const Napi::CallbackInfo& info);
  Napi::Value files(const Napi::CallbackInfo& info);
  Napi::Value metadata(const Napi::CallbackInfo& info);
  Napi::Value config(const Napi::CallbackInfo& info);
  Napi::Value modality(const Napi::CallbackInfo& info);
  Napi::Value warnings(const Napi::CallbackInfo& info);
  Napi::Value info(const Napi::CallbackInfo& info);
  Napi::Value view(const Napi::CallbackInfo& info);
  Napi::Value read(const Napi::CallbackInfo& info);
  Napi::Value slice(const Napi::CallbackInfo& info);
  Napi::Value load(const Napi::CallbackInfo& info);
  Napi::Value check_architecture(const Napi::CallbackInfo& info);

  void close(const Napi::CallbackInfo&) { opened_.reset(); }
  Napi::Value is_closed(const Napi::CallbackInfo& info) { return Napi::Boolean::New(info.Env(), opened_ == nullptr); }

  std::shared_ptr<const Opened> opened_;
};

// Counts a job as a user of a model while this object lives.
class Visit {
 public:
  Visit(Users& users, const Job& job) : users_(users), job_(job) { users_.add(job_); }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;
  ~Visit() { users_.remove(job_); }

 private:
  Users& users_;
  const Job& job_;
};

template <class Work>
auto Source::with(Job& job, const Work& work) const -> std::invoke_result_t<Work, const Model&> {
  if (const auto* const path = std::get_if<std::string>(&place)) {
    const auto opened = open_as(job, {.path = *path, .decode = true, .options = {}});
    if (!opened) return std::unexpected(opened.error());
    const Visit visit(*(*opened)->users, job);
    return work((*opened)->model);
  }
  const auto& opened = std::get<std::shared_ptr<const Opened>>(place);
  if (!opened) return std::unexpected(Error{.code = Errc::kInvalidArgument, .message = "the model is closed"});
  const Visit visit(*opened->users, job);
  return work(opened->model);
}

}  // namespace ballast::node
