// SPDX-License-Identifier: MIT
// The table of objects: their names, their life, and what is wrong with its end.

#include "tracked.hpp"

#include <algorithm>
#include <map>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace lint {
namespace {

[[maybe_unused]] const int at_fork = [] {
  at_child([] { // its only thread is in no call
    for (const auto &[address, object] : objects())
      object->threads.clear();
  });
  return 0;
}();

void check_process(const char *call, const Object &object) {
  if (object.pid != getpid() && !object.internal)
    report(rules::child_use,
           print("%s in process %d on an object of process %d", call, getpid(), object.pid),
           object.name, object.history());
}

// The names of the objects that keep `object` from being destroyed. Under the lock.
std::string users_of(const void *object) {
  std::string users;
  const auto name = [&](const Object &user) { users += (users.empty() ? "" : ", ") + user.name; };
  for (const auto &[address, mr] : all<Mr>())
    if (mr->pd == object)
      name(*mr);
  for (const auto &[address, mw] : all<Mw>())
    if (mw->pd == object)
      name(*mw);
  for (const auto &[address, ah] : all<Ah>())
    if (ah->pd == object)
      name(*ah);
  for (const auto &[address, srq] : all<Srq>())
    if (srq->pd == object)
      name(*srq);
  for (const auto &[address, cq] : all<Cq>())
    if (cq->channel == object)
      name(*cq);
  for (const auto &[address, qp] : all<Qp>())
    if (qp->pd == object || qp->send_cq == object || qp->recv_cq == object || qp->srq == object)
      name(*qp);
  for (const auto &[address, id] : all<CmId>())
    if (id->channel == object)
      name(*id);
  return users;
}

// Requests that still need the region. Under the lock.
const Posted *in_flight(const Mr &mr, std::string &queue) {
  const auto look = [&](const std::deque<Posted> &posted) -> const Posted * {
    for (const Posted &one : posted)
      for (const Range &range : one.ranges)
        if (const auto its = range.mr.lock(); its.get() == &mr)
          return &one;
    return nullptr;
  };
  for (const auto &[address, qp] : all<Qp>()) {
    if (qp->state == IBV_QPS_ERR || qp->failed)
      continue; // its NIC has stopped
    for (const auto *posted : {&qp->sends, &qp->receives})
      if (const Posted *found = look(*posted)) {
        queue = qp->name;
        return found;
      }
  }
  for (const auto &[address, srq] : all<Srq>())
    if (const Posted *found = look(srq->receives)) {
      queue = srq->name;
      return found;
    }
  return nullptr;
}

} // namespace

std::unordered_map<const void *, std::shared_ptr<Object>> &objects() {
  static auto &all = *new std::unordered_map<const void *, std::shared_ptr<Object>>;
  return all;
}

std::deque<std::shared_ptr<Object>> &destroyed() {
  static auto &all = *new std::deque<std::shared_ptr<Object>>;
  return all;
}

void forget_dead(const void *address) {
  const Locked lock;
  const auto found = objects().find(address);
  if (found != objects().end() && !found->second->live)
    objects().erase(found);
}

void Events::take() {
  ++by_thread_[thread_id()];
}

void Events::acknowledge(std::uint64_t count) {
  const auto from = [&](std::uint64_t &taken) {
    const std::uint64_t some = std::min(taken, count);
    taken -= some;
    count -= some;
  };
  from(by_thread_[thread_id()]);
  for (auto &[thread, taken] : by_thread_)
    from(taken);
}

std::uint64_t Events::open() const {
  std::uint64_t all = 0;
  for (const auto &[thread, taken] : by_thread_)
    all += taken;
  return all;
}

std::uint64_t Events::open_on_this() const {
  const auto found = by_thread_.find(thread_id());
  return found == by_thread_.end() ? 0 : found->second;
}

History Object::history() const {
  History history{{"made", made}};
  if (!live)
    history.emplace_back("destroyed", destroyed);
  return history;
}

void note_new(const std::shared_ptr<Object> &object, const char *kind, const ibv_context *context) {
  static auto &numbers = *new std::map<std::string, int>;
  object->made = Site::here();
  without_lock([object] { object->internal = made_by_library(object->made); });
  object->pid = getpid();
  object->context = context;
  object->name = kind + std::to_string(++numbers[kind]);
}

namespace {

// (context, number) -> object, for what has numbers of its own.
template <typename T>
std::map<std::pair<const void *, std::uint32_t>, std::weak_ptr<T>> &by_number() {
  static auto &all = *new std::map<std::pair<const void *, std::uint32_t>, std::weak_ptr<T>>;
  return all;
}

template <typename T>
std::shared_ptr<T> numbered(const ibv_context *context, std::uint32_t number) {
  const auto found = by_number<T>().find({context, number});
  const auto object = found == by_number<T>().end() ? nullptr : found->second.lock();
  return object && object->live ? object : nullptr;
}

} // namespace

std::shared_ptr<Mr> region(const ibv_context *context, std::uint32_t lkey) {
  return numbered<Mr>(context, lkey);
}

std::shared_ptr<Qp> queue_pair(const ibv_context *context, std::uint32_t number) {
  return numbered<Qp>(context, number);
}

void index(const std::shared_ptr<Mr> &mr) {
  by_number<Mr>()[{mr->context, mr->lkey}] = mr;
}

void index(const std::shared_ptr<Qp> &qp) {
  by_number<Qp>()[{qp->context, qp->number}] = qp;
}

Use::Use(const char *call, const void *address) {
  const Locked lock;
  const auto found = objects().find(address);
  if (found == objects().end())
    return; // made before this library, or by a call that it does not know
  object_ = found->second;
  if (!object_->live) {
    report(rules::use_after_destroy, std::string(call) + " on a destroyed object", object_->name,
           object_->history());
    refused_ = true;
  } else {
    check_process(call, *object_);
  }
  object_->threads.push_back(thread_id());
}

Use::~Use() {
  if (!object_)
    return;
  const Locked lock;
  auto &threads = object_->threads;
  threads.erase(std::find(threads.begin(), threads.end(), thread_id()));
}

Destruction::Destruction(const char *call, const void *address) : call_(call), address_(address) {
  const Locked lock;
  const auto found = objects().find(address);
  if (found == objects().end())
    return;
  Object &object = *found->second;
  if (!object.live) {
    report(rules::use_after_destroy, std::string(call) + " on a destroyed object", object.name,
           object.history());
    refused_ = true;
    return;
  }
  check_process(call, object);
  for (const pid_t thread : object.threads)
    if (thread != thread_id()) {
      report(rules::destroyed_in_use,
             print("%s while thread %d is inside a call on it", call, thread), object.name,
             object.history());
      break;
    }
  if (const auto *mr = dynamic_cast<Mr *>(&object)) {
    std::string queue;
    if (const Posted *posted = in_flight(*mr, queue))
      report(rules::deregistered_in_flight,
             print("%s of %s is deregistered while %s wr_id %llu is posted to %s", call,
                   object.name.c_str(), posted->what,
                   static_cast<unsigned long long>(posted->wr_id), queue.c_str()),
             object.name, {{"made", object.made}, {"posted", posted->site}});
  }
  if (dynamic_cast<Ah *>(&object))
    for (const auto &[at, qp] : all<Qp>())
      for (const Posted &posted : qp->sends)
        // An answer of the peer's can tell that a request that is not signaled is done.
        if (posted.ah == address && posted.signaled && !qp->failed) {
          report(rules::ah_destroyed_early,
                 print("%s of %s while SEND wr_id %llu of %s uses it", call, object.name.c_str(),
                       static_cast<unsigned long long>(posted.wr_id), qp->name.c_str()),
                 object.name, {{"made", object.made}, {"posted", posted.site}});
          break;
        }
  const auto *cq = dynamic_cast<Cq *>(&object);
  const auto *id = dynamic_cast<CmId *>(&object);
  if (const Events *events = cq   ? &cq->events
                             : id ? &id->events
                                  : nullptr;
      events && events->open_on_this())
    report(rules::event_not_acked,
           print("%llu events of %s are not acknowledged",
                 static_cast<unsigned long long>(events->open_on_this()), object.name.c_str()),
           object.name, object.history());
  if (const auto *qp = dynamic_cast<Qp *>(&object); qp && !qp->failed) {
    const std::uint64_t unknown = static_cast<std::uint64_t>(std::count_if(
        qp->sends.begin(), qp->sends.end(), [](const Posted &posted) { return !posted.signaled; }));
    if (unknown && !qp->taken && qp->type != IBV_QPT_UD && qp->state == IBV_QPS_RTS)
      report(rules::unsignaled_lost,
             print("%llu unsignaled requests of %s have no signaled request behind them",
                   static_cast<unsigned long long>(unknown), object.name.c_str()),
             object.name, {{"made", object.made}, {"posted", qp->sends.back().site}});
  }
  object_ = found->second;
  watch_free(address);
}

bool Destruction::ended(int error) {
  if (!object_)
    return false;
  const bool kept = was_kept();
  const Locked lock;
  Object &object = *object_;
  if (error) {
    const std::string users = users_of(address_);
    if (!users.empty())
      report(rules::destroy_order, std::string(call_) + " is refused: in use by " + users,
             object.name, object.history());
    return !users.empty();
  }
  object.live = false;
  object.destroyed = Site::here();
  const auto found = objects().find(address_);
  if (!kept && found != objects().end() && found->second == object_)
    objects().erase(found); // anything may get this address
  if (dynamic_cast<Mr *>(&object) || dynamic_cast<Qp *>(&object)) {
    destroyed().push_back(object_);
    if (destroyed().size() > 4096)
      destroyed().pop_front();
  }
  if (const auto qp = std::dynamic_pointer_cast<Qp>(object_)) {
    const std::pair<const void *, std::size_t> ends[] = {{qp->send_cq, qp->sends.size()},
                                                         {qp->recv_cq, qp->receives.size()}};
    qp->left = qp->sends.size() + qp->receives.size();
    for (const auto &[queue, posted] : ends)
      if (const auto cq = find<Cq>(queue); cq && posted)
        cq->lost = qp;
    forget_posted(*qp);
  }
  if (auto *context = dynamic_cast<Context *>(&object); context && !object.internal) {
    std::string left;
    for (const auto &[at, other] : objects())
      if (other->live && other->context == address_ && !other->internal)
        left += (left.empty() ? "" : ", ") + other->name;
    if (!left.empty())
      report(rules::destroy_order, std::string(call_) + ", but these objects still exist: " + left,
             object.name, object.history());
  }
  return true;
}

} // namespace lint
