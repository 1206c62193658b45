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
    fiber = mrb_funcall(mrb, vm->module, "fiber", 0);
    mrb_ary_set(mrb, vm->fibers, slot, fiber);
  }
  return fiber;
}

static mrb_value take_step(mrb_state *mrb, void *user) {
  step *s = user;
  fb_vm *vm = mrb->ud;
  mrb_value args[2];
  int count = 2;
  mrb_value fiber = fiber_of(mrb, vm, s->slot);
  switch (s->kind) {
  case START:
    args[0] = vm_interned(mrb, vm, s->job);
    args[1] = tape_take(mrb, s->bytes);
    break;
  case REQUEST:
    if (s->job >= RARRAY_LEN(vm->apps)) mrb_raise(mrb, E_RUNTIME_ERROR, "no such handler");
    mrb_ary_set(mrb, vm->request, 0, RARRAY_PTR(vm->apps)[s->job]);
    mrb_ary_set(mrb, vm->request, 1, environment(mrb, vm, s));
    mrb_ary_set(mrb, vm->request, 2, mrb_int_value(mrb, s->more ? 2 : 1));
    args[0] = vm->request;
    count = 1;
    break;
  case RESUME:
    args[0] = tape_take(mrb, s->bytes);
    count = 1;
    break;
  }
  memory_for_task(vm);
  mrb_value result = mrb_fiber_resume(mrb, fiber, count, args);
  memory_for_driver(vm);
  /* From here on only the task has its env. */
  if (s->kind == REQUEST) mrb_ary_set(mrb, vm->request, 1, mrb_nil_value());
  if (mrb_obj_eq(mrb, result, vm->marker)) return result;
  /* true: Rt.plain has already written the response. Everything else is written here. */
  if (!mrb_true_p(result)) {
    vm->out.length = 0;
    tape_value(mrb, &vm->out, result, 0);
  }
  return mrb_nil_value();
}

static int take_steps(fb_vm *vm, step *s) {
  mrb_value result;
  memory_for_driver(vm);
  atomic_fetch_add(&vm->serial, 1);
#if CAN_STOP
  if (sigsetjmp(vm->leave, 0)) return FB_STOPPED;
#endif
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

void fb_abandon(fb_vm *vm, uint32_t slot) {
  if (slot < RARRAY_LEN(vm->fibers)) RARRAY_PTR(vm->fibers)[slot] = mrb_nil_value();
}
