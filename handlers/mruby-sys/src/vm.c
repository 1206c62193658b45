/* Opening and closing a VM, and entering it protected. */
#include "stop.h"

#include <stdlib.h>

/* Writes an exception to `out` without calling Ruby. */
static void write_error(fb_vm *vm, const char *name, const char *message) {
  mrb_state *mrb = vm->mrb;
  vm->out.length = 0;
  tape_counted(mrb, &vm->out, '[', 3);
  tape_text(mrb, &vm->out, 's', name, strlen(name));
  tape_text(mrb, &vm->out, 's', message, strlen(message));
  tape_counted(mrb, &vm->out, '[', 0);
}

/* Writes an exception to `out`: class, message, backtrace. */
static mrb_value describe(mrb_state *mrb, void *user) {
  fb_vm *vm = mrb->ud;
  mrb_value exception = *(mrb_value *)user;
  const char *name = mrb_obj_classname(mrb, exception);
  mrb_value message = mrb_funcall(mrb, exception, "message", 0);
  mrb_value trace = mrb_funcall(mrb, exception, "backtrace", 0);
  vm->out.length = 0;
  tape_counted(mrb, &vm->out, '[', 3);
  tape_text(mrb, &vm->out, 's', name, strlen(name));
  tape_value(mrb, &vm->out, mrb_obj_as_string(mrb, message), 1);
  if (mrb_array_p(trace)) tape_value(mrb, &vm->out, trace, 1);
  else tape_counted(mrb, &vm->out, '[', 0);
  return mrb_nil_value();
}

int vm_enter(fb_vm *vm, mrb_protect_error_func *body, void *user, mrb_value *result) {
  mrb_state *mrb = vm->mrb;
  int arena = mrb_gc_arena_save(mrb);
  mrb_bool raised = 0;
  mrb_value value = mrb_protect_error(mrb, body, user, &raised);
  mrb->exc = NULL;
  if (raised) {
    mrb_bool again = 0;
    memory_for_driver(vm);
    mrb_protect_error(mrb, describe, &value, &again);
    mrb->exc = NULL;
    if (again) write_error(vm, "Exception", "an exception that cannot be described");
  }
  if (result) *result = value;
  mrb_gc_arena_restore(mrb, arena);
  return raised ? FB_RAISED : FB_DONE;
}

mrb_value vm_interned(mrb_state *mrb, fb_vm *vm, uint32_t number) {
  if (number >= RARRAY_LEN(vm->interned)) mrb_raise(mrb, E_RUNTIME_ERROR, "no such interned text");
  return RARRAY_PTR(vm->interned)[number];
}

typedef struct {
  const uint8_t *text;
  size_t length;
} text;

static mrb_value keep(mrb_state *mrb, void *user) {
  fb_vm *vm = mrb->ud;
  text *t = user;
  mrb_value string = mrb_str_new(mrb, (const char *)t->text, t->length);
  mrb_obj_freeze(mrb, string);
  mrb_ary_push(mrb, vm->interned, string);
  return string;
}

uint32_t fb_intern(fb_vm *vm, const uint8_t *bytes, size_t length) {
  text t = {bytes, length};
  memory_for_driver(vm);
  if (vm_enter(vm, keep, &t, NULL) != FB_DONE) return UINT32_MAX;
  return (uint32_t)RARRAY_LEN(vm->interned) - 1;
}

fb_bytes fb_out(fb_vm *vm) {
  fb_bytes out = {vm->out.data, vm->out.length};
  return out;
}

/* Defines Rt and the objects that the shim keeps. */
static mrb_value define_runtime(mrb_state *mrb, void *user) {
  fb_vm *vm = user;
  struct RClass *rt = mrb_define_module(mrb, "Rt");
  vm->interrupted_class = mrb_define_class_under(mrb, rt, "Interrupted", mrb->eException_class);
  vm->module = mrb_obj_value(rt);
  vm->roots = mrb_ary_new(mrb);
  mrb_gc_register(mrb, vm->roots);
  vm->fibers = mrb_ary_new(mrb);
  mrb_ary_push(mrb, vm->roots, vm->fibers);
  vm->interned = mrb_ary_new(mrb);
  mrb_ary_push(mrb, vm->roots, vm->interned);
  vm->apps = mrb_ary_new(mrb);
  mrb_ary_push(mrb, vm->roots, vm->apps);
  vm->request = mrb_ary_new(mrb);
  mrb_ary_push(mrb, vm->roots, vm->request);
  vm->template = mrb_nil_value();
  vm->shapes.hashes = mrb_ary_new(mrb);
  mrb_ary_push(mrb, vm->roots, vm->shapes.hashes);
  vm->marker = mrb_obj_new(mrb, mrb->object_class, 0, NULL);
  mrb_ary_push(mrb, vm->roots, vm->marker);
  mrb_define_const(mrb, rt, "WAITING", vm->marker);
  methods_define(mrb, rt);
  fibers_define(mrb, rt);
  source_define(mrb);
  return mrb_nil_value();
}

fb_vm *fb_open(const fb_config *config, const char **reason) {
  fb_vm *vm = calloc(1, sizeof *vm);
  *reason = "no memory for a Ruby VM";
  if (!vm) return NULL;
  vm->config = *config;
  vm->ceiling = vm->utmost = SIZE_MAX;
  vm->blocks.next = vm->blocks.previous = &vm->blocks;
  vm->thread = pthread_self();
  vm->mrb = memory_open(vm);
  if (vm->first_allocation && vm->first_allocation != sizeof(mrb_state)) {
    /* The library's first allocation is the mrb_state. Using it through headers with another size would corrupt it. */
    *reason = "libmruby was built with other options than its headers say (compile with or without MRB_USE_DEBUG_HOOK)";
    /* Closing the state would use it. */
    return NULL;
  }
  if (!vm->mrb) {
    free(vm);
    return NULL;
  }
  vm->mrb->ud = vm;
  if (vm_enter(vm, define_runtime, vm, NULL) != FB_DONE) {
    fb_close(vm);
    return NULL;
  }
  memory_watch(vm);
  stop_verify(vm);
  *reason = NULL;
  return vm;
}

void fb_close(fb_vm *vm) {
  memory_for_driver(vm);
  mrb_close(vm->mrb);
  free(vm->out.data);
  free(vm);
}

void fb_discard(fb_vm *vm) {
  memory_discard(vm);
  free(vm->out.data);
  free(vm);
}

const char *fb_version(void) { return MRUBY_VERSION; }

int fb_has_hook(void) {
#ifdef MRB_USE_DEBUG_HOOK
  return 1;
#else
  return 0;
#endif
}
