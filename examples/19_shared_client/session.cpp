#include "session.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/immediate.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <utility>

namespace shared_client {

using namespace rdmacommon;

namespace {

Shape limited(Shape shape, uint32_t window) {
  shape.window = std::min(shape.window, window);
  return shape;
}

} // namespace

void Job::operator()() const {
  session->work_on(request);
}

Session::Session(unique_cm_id id, const Hello &hello, uint64_t token, const SessionOptions &options,
                 const Handler &handler, Pool<Job> &pool, Stats &stats)
    : token_(token), options_(options), handler_(handler), pool_(pool), stats_(stats),
      shape_(limited(hello.shape, options.window)),
      requests_(size_t{shape_.slots} * shape_.slot_size), copies_(requests_.size()),
      answers_(requests_.size()), data_(size_t{shape_.slots} * shape_.largest),
      is_taken_(shape_.slots), data_address_(hello.data_address), data_rkey_(hello.data_rkey),
      awaited_(shape_.largest > 0 ? 2 : 1), id_(std::move(id)),
      connection_(id_.get(), shape_.window, shape_.slots) {
  const int local = IBV_ACCESS_LOCAL_WRITE;
  requests_rkey_ = connection_.reg(requests_, local | IBV_ACCESS_REMOTE_WRITE)->rkey;
  if (!data_.empty())
    data_mr_ = connection_.reg(data_, local);
  mirror_ = {.mine = connection_.reg(answers_, local),
             .slot_size = shape_.slot_size,
             .address = hello.answers_address,
             .rkey = hello.answers_rkey,
             .most_inline = inline_bytes};
}

// [accept]
void Session::accept() {
  const WelcomeBytes bytes =
      to_bytes(Welcome{.refusal = Refusal::none,
                       .window = shape_.window,
                       .requests_address = reinterpret_cast<uint64_t>(requests_.data()),
                       .requests_rkey = requests_rkey_,
                       .token = token_});
  began_ = Clock::now();
  id_->context = this;
  set_ack_timeout(id_.get());
  rdma_conn_param parameters = connection_parameters(&bytes, sizeof bytes);
  check_errno(rdma_accept(id_.get(), &parameters), "rdma_accept"); // the receives are posted
}

void Session::accept_data(unique_cm_id id) {
  if (shape_.largest == 0 || data_id_)
    throw Error("a data connection", "there is none to come", Where::here());
  connection_.add_data_connection(id.get());
  data_id_ = std::move(id);
  data_id_->context = this;
  const WelcomeBytes bytes = to_bytes(Welcome{});
  set_ack_timeout(data_id_.get());
  rdma_conn_param parameters = connection_parameters(&bytes, sizeof bytes);
  check_errno(rdma_accept(data_id_.get(), &parameters), "rdma_accept");
}
// [accept]

// [session-turn]
bool Session::turn() {
  if (is_closed_)
    return false;
  std::array<ibv_wc, 64> done{};
  const size_t count = connection_.poll(done);
  for (const ibv_wc &wc : std::span(done).first(count)) {
    stats_.count(wc);
    check_wc(wc, "a request or a receive");
    if ((wc.opcode & IBV_WC_RECV) != 0)
      take_run(connection_.receiver.received(wc));
    else if (connection_.data && wc.qp_num == connection_.data->get()->qp_num)
      connection_.data->queue.completed(wc);
    else
      connection_.runs.queue.completed(wc);
  }
  hand_over_jobs();
  const uint64_t posts = connection_.receiver.posts();
  connection_.receiver.repost(); // before the answers, after which the client may send more
  stats_.posts += connection_.receiver.posts() - posts;
  take_finished();
  if (!unsent_.empty() || !on_wire_.empty())
    send_data();
  return send_answers() || count > 0;
}
// [session-turn]

bool Session::arm() {
  if (is_closed_)
    return true;
  if (!connection_.arm()) {
    stats_.other_calls += 1;
    return false;
  }
  const std::lock_guard lock(mutex_);
  return finished_.empty();
}

void Session::on_completion_event() {
  connection_.take_event();
  stats_.other_calls += 1;
}

// [take-run]
void Session::take_run(Run run) {
  // The client has announced a data connection. Without it, there is nowhere for a response to go.
  if (shape_.largest > 0 && !connection_.data)
    throw Error("a request", "the session's data connection is missing", Where::here());
  // A client that sends again what has no answer yet would change the copy that a handler is reading.
  const auto marks = is_taken_.begin() + run.first;
  if (std::find(marks, marks + run.count, 1) != marks + run.count)
    throw Error("a request", "its slot has one that has no answer yet", Where::here());
  const size_t bytes = size_t{run.count} * shape_.slot_size;
  std::memcpy(slot_of(copies_, run.first).data(), slot_of(requests_, run.first).data(), bytes);
  for (uint32_t slot = run.first, end = run.first + run.count; slot < end;) {
    SlotHeader wire;
    std::memcpy(&wire, slot_of(copies_, slot).data(), sizeof wire);
    const Message request = checked_request(wire, slot, end - slot, shape_);
    std::fill_n(is_taken_.begin() + slot, request.slots, uint8_t{1});
    if (++in_work_ > shape_.window)
      throw Error("a request", "more than the window are under way", Where::here());
    jobs_.push_back({.session = this, .request = request});
    slot += request.slots;
  }
}
// [take-run]

// [work-on]
Message Session::answer_to(const Message &request) {
  const size_t header = sizeof(SlotHeader), slots = size_t{request.slots} * shape_.slot_size;
  const std::span in_slots = slot_of(answers_, request.slot).first(slots).subspan(header);
  const std::span room =
      shape_.largest > 0
          ? std::span(data_).subspan(size_t{request.slot} * shape_.largest, shape_.largest)
          : in_slots;
  // [call-handler]
  Message answer = request;
  std::optional<std::string> failure;
  try {
    const size_t length =
        handler_(slot_of(copies_, request.slot).subspan(header, request.length), room);
    answer.kind = shape_.largest > 0 ? Kind::data : Kind::response;
    answer.length = static_cast<uint32_t>(length);
    if (length > room.size())
      failure = "the response has " + std::to_string(length) + " bytes, and there is room for " +
                std::to_string(room.size());
  } catch (const std::exception &error) {
    failure = error.what();
  } catch (...) {
    failure = "an unknown exception";
  }
  // [call-handler]
  if (request.kind == Kind::post) {
    answer.kind = Kind::done;
    answer.length = 0;
  } else if (failure) {
    answer.kind = Kind::failure;
    answer.length = static_cast<uint32_t>(std::min(failure->size(), in_slots.size()));
    std::memcpy(in_slots.data(), failure->data(), answer.length);
  }
  const SlotHeader wire = header_of(answer);
  std::memcpy(slot_of(answers_, request.slot).data(), &wire, sizeof wire);
  return answer;
}

void Session::work_on(const Message &request) {
  // What a client has left behind must not keep the pool from the others' requests.
  const Message answer = is_closed_ ? request : answer_to(request);
  const std::lock_guard lock(mutex_);
  const bool was_empty = finished_.empty();
  finished_.push_back(answer);
  --at_work_;
  // Else it has been told, and has not looked yet. To a session that is closed it does not look until the last one.
  if (options_.finished && (was_empty || at_work_ == 0))
    options_.finished();
}
// [work-on]

void Session::hand_over_jobs() {
  if (jobs_.empty())
    return;
  {
    const std::lock_guard lock(mutex_);
    at_work_ += static_cast<uint32_t>(jobs_.size());
  }
  stats_.wakes += pool_.add(jobs_);
}

void Session::take_finished() {
  {
    const std::lock_guard lock(mutex_);
    just_finished_.swap(finished_); // with its room
  }
  for (const Message &answer : just_finished_)
    (answer.kind == Kind::data && answer.length > 0 ? unsent_ : ready_).push_back(answer);
  just_finished_.clear();
}

// [send-data]
// Two queue pairs have no order between them. So the answer that says "it is there" must not go before the data have
// arrived, and that is when their WRITE has completed.
void Session::send_data() {
  SendQueue &queue = connection_.data->queue;
  const size_t count = std::min<size_t>(unsent_.size(), is_established() ? queue.room() : 0);
  for (size_t i = 0; i < count; ++i) {
    const Message &answer = unsent_[i];
    const uint64_t offset = uint64_t{answer.slot} * shape_.largest;
    ibv_sge from = piece(data_mr_, data_.data() + offset, answer.length);
    queue.add({.sg_list = &from,
               .num_sge = 1,
               .opcode = IBV_WR_RDMA_WRITE,
               .send_flags = i + 1 == count ? unsigned{IBV_SEND_SIGNALED} : 0,
               .wr = {.rdma = {.remote_addr = data_address_ + offset, .rkey = data_rkey_}}});
    on_wire_.push_back({.answer = answer, .data_request = queue.added()});
  }
  unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<std::ptrdiff_t>(count));
  stats_.posts += count > 0;
  queue.post();
  std::erase_if(on_wire_, [&](const OnItsWay &it) {
    if (it.data_request > queue.done())
      return false;
    ready_.push_back(it.answer);
    return true;
  });
}
// [send-data]

// [send-answers]
bool Session::send_answers() {
  SendQueue &queue = connection_.runs.queue;
  // Sorted, what was worked on in any order, and came in any groups, makes runs again.
  if (!std::ranges::is_sorted(ready_, {}, &Message::slot))
    std::ranges::sort(ready_, {}, &Message::slot);
  size_t sent = 0;
  while (sent < ready_.size() && queue.room() > 0) {
    const uint32_t first = ready_[sent].slot;
    uint32_t end = first, bytes = 0, messages = 0;
    do {
      const Message &answer = ready_[sent++];
      bytes = (answer.slot - first) * shape_.slot_size + static_cast<uint32_t>(sizeof(SlotHeader)) +
              (answer.kind == Kind::data ? 0 : answer.length);
      end = answer.slot + answer.slots;
      ++messages;
      --in_work_;
      std::fill_n(is_taken_.begin() + answer.slot, answer.slots, uint8_t{0});
    } while (sent < ready_.size() && ready_[sent].slot == end &&
             end + ready_[sent].slots - first <= options_.most);
    add_run(queue, mirror_, {.first = first, .count = end - first}, bytes);
    stats_.count_group(messages);
  }
  ready_.erase(ready_.begin(), ready_.begin() + static_cast<std::ptrdiff_t>(sent));
  if (wants_to_say_closing_ && queue.room() > 0) {
    add_run(queue, mirror_, {.first = 0, .count = 0}, 0);
    wants_to_say_closing_ = false;
  }
  const uint64_t posts = queue.posts();
  queue.post();
  stats_.posts += queue.posts() - posts;
  return queue.posts() != posts;
}
// [send-answers]

void Session::close() noexcept {
  if (is_closed_.exchange(true))
    return;
  for (const unique_cm_id *id : {&id_, &data_id_})
    if (*id) {
      (*id)->context = nullptr;   // no event leads here any more
      rdma_disconnect(id->get()); // fails if the connection never was, or is not any more
    }
}

bool Session::is_gone() const {
  const std::lock_guard lock(mutex_);
  return is_closed_ && at_work_ == 0;
}

} // namespace shared_client
