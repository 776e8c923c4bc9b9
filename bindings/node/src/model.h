#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include <napi.h>

#include <ballast/model.h>

#include "jobs.h"

namespace ballast::node {

// The jobs that use a model at the moment. They share what waits for its server, which gives up when all of them are to stop.
class Users {
 public:
  void add(const Job& job);
  void remove(const Job& job);
  bool are_all_stopped() const;

 private:
  mutable std::mutex mutex_;
  std::vector<const Job*> jobs_;
};

// A model with writable views, which arrays and jobs keep open.
struct Opened {
  std::shared_ptr<Users> users;
  Model model;

  Jobs::Length read_length() const;  // of work that reads a little of it
};

// What a job reads from: a model that is open, or one that it opens itself.
struct Source {
  std::variant<std::string, std::shared_ptr<const Opened>> place;

  // Runs `work`, a function of const Model& to a Result, as a user of the model.
  template <class Work>
  auto with(Job& job, const Work& work) const -> std::invoke_result_t<Work, const Model&>;
};

struct OpenRequest {
  std::string path;
  bool pretrained = false;  // as load_pretrained() opens it
  bool decode = false;      // quantized weights
  OpenOptions options;
};

Result<std::shared_ptr<const Opened>> open_as(Job& job, OpenRequest request);

// As JavaScript sees it. Jobs are given as {promise, cancel}.
class NativeModel : public Napi::ObjectWrap<NativeModel> {
 public:
  static void define(Napi::Env env, Napi::Object& exports);
  static Source source_of(const Napi::Value& value);  // a path or a native model

  explicit NativeModel(const Napi::CallbackInfo& info);

 private:
  static Napi::Value open(const Napi::CallbackInfo& info);

  // All of these throw once it is closed.
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

// A user of a model for as long as it lives.
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
    const auto opened = open_as(job, {.path = *path, .options = {}});
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
