/* Tasks: steps of fibers, and the envs of requests. */
#include "stop.h"

typedef struct {
  uint32_t slot;
  uint32_t job;          /* start: number of the interned method name; request: number of the handler */
  fb_bytes bytes;        /* start: arguments; resume: the value */
  const fb_field *fields;
  size_t count;
  int more;              /* request: whether Ruby has to convert some fields */
  enum { START, REQUEST, RESUME } kind;
} step;

static mrb_value field_text(mrb_state *mrb, fb_vm *vm, const uint8_t *bytes, uint32_t length) {
  return bytes ? mrb_str_new(mrb, (const char *)bytes, length) : vm_interned(mrb, vm, length);
}

static mrb_value key_of_shape(mrb_state *mrb, uint32_t number) { return vm_interned(mrb, mrb->ud, number); }

static mrb_value environment(mrb_state *mrb, fb_vm *vm, const step *s) {
  int arena = mrb_gc_arena_save(mrb);
  const shape *known = shapes_find(&vm->shapes, s->fields, s->count);
  if (known) {
    mrb_value env = shapes_copy(mrb, &vm->shapes, known);
    for (size_t i = 0; i < s->count; i++) {
      shape_put(env, known->places[i], field_text(mrb, vm, s->fields[i].value, s->fields[i].value_length));
    }
    shape_filled(mrb, env);
    mrb_gc_arena_restore(mrb, arena);
    mrb_gc_protect(mrb, env);
    return env;
  }
  mrb_value env = mrb_nil_p(vm->template) ? mrb_hash_new_capa(mrb, (mrb_int)s->count) : mrb_hash_dup(mrb, vm->template);
  arena = mrb_gc_arena_save(mrb);
  for (size_t i = 0; i < s->count; i++) {
    const fb_field *field = &s->fields[i];
    mrb_value key = field_text(mrb, vm, field->key, field->key_length);
    mrb_value value = field_text(mrb, vm, field->value, field->value_length);
    mrb_hash_set(mrb, env, key, value);
    mrb_gc_arena_restore(mrb, arena);
  }
  shapes_learn(mrb, &vm->shapes, s->fields, s->count, env, key_of_shape);
  mrb_gc_arena_restore(mrb, arena);
  return env;
}

static mrb_value fiber_of(mrb_state *mrb, fb_vm *vm, uint32_t slot) {
  mrb_value fiber = slot < RARRAY_LEN(vm->fibers) ? RARRAY_PTR(vm->fibers)[slot] : mrb_nil_value();
  if (mrb_nil_p(fiber)) {
    fiber = fibers_new(mrb, vm);
    mrb_ary_set(mrb, vm->fibers, slot, fiber);
  }
  return fiber;
}

/* The next job of this slot gets another fiber. */
static void drop(mrb_state *mrb, fb_vm *vm, uint32_t slot) {
  if (slot >= RARRAY_LEN(vm->fibers)) return;
  mrb_value fiber = RARRAY_PTR(vm->fibers)[slot];
  if (mrb_nil_p(fiber)) return;
  fibers_detach(mrb, fiber);
  RARRAY_PTR(vm->fibers)[slot] = mrb_nil_value();
}

/* Writes an exception of a task as its result. */
static void put_raised(mrb_state *mrb, fb_vm *vm, const char *name, const char *message, size_t length) {
  vm->out.length = 0;
  tape_counted(mrb, &vm->out, '[', 4);
  tape_text(mrb, &vm->out, ':', "raised", 6);
  tape_text(mrb, &vm->out, 's', name, strlen(name));
  tape_text(mrb, &vm->out, 's', message, length);
  tape_counted(mrb, &vm->out, '[', 0);
}

static mrb_value put_result(mrb_state *mrb, void *result) {
  fb_vm *vm = mrb->ud;
  vm->out.length = 0;
  tape_value(mrb, &vm->out, *(mrb_value *)result, 0);
  return mrb_nil_value();
}

/* Writes the result of a task. What cannot be written is its error, not the VM's. */
static void put(mrb_state *mrb, fb_vm *vm, mrb_value result) {
  mrb_bool raised = 0;
  mrb_value error = mrb_protect_error(mrb, put_result, &result, &raised);
  if (!raised) return;
  mrb->exc = NULL;
  mrb_value message = mrb_funcall(mrb, error, "message", 0);
  int has_message = mrb_string_p(message);
  put_raised(mrb, vm, mrb_obj_classname(mrb, error), has_message ? RSTRING_PTR(message) : "",
             has_message ? (size_t)RSTRING_LEN(message) : 0);
}

static const char stray[] = "the handler left the Fiber of its request (Fiber.yield outside of a Fiber of its own): the server "
                            "cannot continue it";

static mrb_value take_step(mrb_state *mrb, void *user) {
  step *s = user;
  fb_vm *vm = mrb->ud;
  mrb_value argument;
  mrb_value fiber = fiber_of(mrb, vm, s->slot);
  switch (s->kind) {
  case START:
    mrb_ary_set(mrb, vm->request, 0, vm_interned(mrb, vm, s->job));
    mrb_ary_set(mrb, vm->request, 1, tape_take(mrb, s->bytes));
    mrb_ary_set(mrb, vm->request, 2, mrb_nil_value());
    argument = vm->request;
    break;
  case REQUEST:
    if (s->job >= RARRAY_LEN(vm->apps)) mrb_raise(mrb, E_RUNTIME_ERROR, "no such handler");
    mrb_ary_set(mrb, vm->request, 0, RARRAY_PTR(vm->apps)[s->job]);
    mrb_ary_set(mrb, vm->request, 1, environment(mrb, vm, s));
    mrb_ary_set(mrb, vm->request, 2, mrb_int_value(mrb, s->more ? 2 : 1));
    argument = vm->request;
    break;
  default:
    argument = tape_take(mrb, s->bytes);
    break;
  }
  vm->has_plain = vm->waits = 0;
  vm->out.length = 0;
  vm->task = fibers_context(fiber);
  memory_for_task(vm);
  /* One argument: for more, mruby would need memory after it has left this context. */
  mrb_value result = mrb_fiber_resume(mrb, fiber, 1, &argument);
  memory_for_driver(vm);
  vm->task = NULL;
  /* From here on only the task has its env. */
  if (s->kind != RESUME) mrb_ary_set(mrb, vm->request, 1, mrb_nil_value());
  /* Whatever a handler has yielded: it has ended when nothing of it is left in the fiber, and it waits when it has asked to. */
  if (fibers_is_idle(vm, fiber)) {
    if (!vm->has_plain || !mrb_true_p(result)) put(mrb, vm, result);
    return mrb_nil_value();
  }
  if (vm->waits && mrb_obj_eq(mrb, result, vm->marker)) return result;
  if (fibers_context(fiber)->status == MRB_FIBER_TERMINATED) {
    mrb_raise(mrb, E_RUNTIME_ERROR, "an exception left the Fiber of a task");
  }
  drop(mrb, vm, s->slot);
  put_raised(mrb, vm, "FiberError", stray, sizeof stray - 1);
  return mrb_nil_value();
}

/* What the env of a request and a fiber for it take at least. */
#define ROOM_FOR_JOB ((size_t)4096)

static mrb_value refuse_job(mrb_state *mrb, void *user) {
  static const char full[] = "the heap of handlers (mruby.heap) is full";
  (void)user;
  put_raised(mrb, mrb->ud, "NoMemoryError", full, sizeof full - 1);
  return mrb_nil_value();
}

static const char lost[] = "small objects filled the heap (mruby.heap, mruby.request_heap) where mruby cannot raise: this thread's VM "
                           "is replaced, and what waited in it is lost";

/* Writes why a VM was left, without calling mruby. */
static void put_lost(fb_vm *vm) {
  vm->out.length = 0;
  tape_counted(vm->mrb, &vm->out, '[', 3);
  tape_text(vm->mrb, &vm->out, 's', "NoMemoryError", 13);
  tape_text(vm->mrb, &vm->out, 's', lost, sizeof lost - 1);
  tape_counted(vm->mrb, &vm->out, '[', 0);
}

static int take_steps(fb_vm *vm, step *s) {
  mrb_value result;
  memory_for_driver(vm);
  atomic_fetch_add(&vm->serial, 1);
  if (s->kind != RESUME && memory_is_full(vm, ROOM_FOR_JOB)) {
    return vm_enter(vm, refuse_job, NULL, NULL) == FB_DONE ? FB_DONE : FB_BROKEN;
  }
  switch (sigsetjmp(vm->leave, 0)) {
  case 0: break;
  case LEFT_FOR_MEMORY: put_lost(vm); return FB_BROKEN;
  default: return FB_STOPPED;
  }
  stop_running = vm;
  int state = vm_enter(vm, take_step, s, &result);
  stop_running = NULL;
  if (state != FB_DONE) return FB_BROKEN;
  return mrb_nil_p(result) ? FB_DONE : FB_WAIT;
}

int fb_start(fb_vm *vm, uint32_t slot, uint32_t job, fb_bytes args) {
  step s = {.kind = START, .slot = slot, .job = job, .bytes = args};
  return take_steps(vm, &s);
}

int fb_request(fb_vm *vm, uint32_t slot, uint32_t app, const fb_field *fields, size_t count, int more) {
  step s = {.kind = REQUEST, .slot = slot, .job = app, .fields = fields, .count = count, .more = more};
  return take_steps(vm, &s);
}

int fb_resume(fb_vm *vm, uint32_t slot, fb_bytes value) {
  step s = {.kind = RESUME, .slot = slot, .bytes = value};
  return take_steps(vm, &s);
}

typedef struct {
  uint32_t slot;
} abandoned;

static mrb_value abandon(mrb_state *mrb, void *user) {
  drop(mrb, mrb->ud, ((abandoned *)user)->slot);
  return mrb_nil_value();
}

void fb_abandon(fb_vm *vm, uint32_t slot) {
  abandoned a = {slot};
  memory_for_driver(vm);
  vm_enter(vm, abandon, &a, NULL);
}
