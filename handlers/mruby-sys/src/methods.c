/* The methods of Rt that are written in C. */
#include "vm.h"

#include <mruby/class.h>

/* Rt.call(op, *args): runs a call of the host. */
static mrb_value rt_call(mrb_state *mrb, mrb_value self) {
  fb_vm *vm = mrb->ud;
  mrb_int op, count;
  const mrb_value *args;
  (void)self;
  mrb_get_args(mrb, "i*", &op, &args, &count);
  vm->has_plain = vm->waits = 0;
  vm->out.length = 0;
  tape_counted(mrb, &vm->out, '[', count);
  for (mrb_int i = 0; i < count; i++) tape_value(mrb, &vm->out, args[i], 1);
  fb_bytes given = {vm->out.data, vm->out.length};
  mrb_value result = tape_take(mrb, vm->config.call(vm->config.host, (uint32_t)op, given));
  if (mrb_type(result) == MRB_TT_EXCEPTION) mrb_exc_raise(mrb, result);
  return result;
}

/* The frame that a task cannot suspend, because a C function is between it and its fiber. NULL if the task can wait. */
static mrb_callinfo *blocking_frame(mrb_state *mrb) {
  struct mrb_context *c = mrb->c;
  for (mrb_callinfo *ci = c->ci; ci > c->cibase; ci--) {
    if (ci->cci > 0) return ci;
  }
  return NULL;
}

/* The method of a frame; for a block, the method that it is in. */
static mrb_sym name_of(mrb_state *mrb, const mrb_callinfo *ci) {
  return ci->mid ? ci->mid : mrb_intern_lit(mrb, "main");
}

static int is_c(const mrb_callinfo *ci) { return !ci->proc || MRB_PROC_CFUNC_P(ci->proc); }

/* Methods and lambdas are strict about their arguments; blocks are not. */
static int is_block(const mrb_callinfo *ci) { return !is_c(ci) && !MRB_PROC_STRICT_P(ci->proc); }

/* Raises a FiberError that names the method or block that cannot wait, and its caller. */
static void refuse(mrb_state *mrb, mrb_callinfo *held) {
  const mrb_callinfo *caller = held - 1;
  const char *way_out = "; wait first, then use the result";
  if (is_block(held)) {
    int of_hash = strcmp(mrb_sym_name(mrb, name_of(mrb, caller)), "[]") == 0;
    mrb_raisef(mrb, E_FIBER_ERROR, "cannot wait here: %s was called by `%n', which mruby cannot suspend%s",
               of_hash ? "the default block of a Hash" : "this block", name_of(mrb, caller), way_out);
  }
  if (is_c(caller) && caller->mid) {
    mrb_raisef(mrb, E_FIBER_ERROR, "cannot wait here: `%n' was called by `%n', which mruby cannot suspend%s",
               name_of(mrb, held), name_of(mrb, caller), way_out);
  }
  mrb_raisef(mrb, E_FIBER_ERROR, "cannot wait here: `%n' was called by mruby itself (in `%n')%s", name_of(mrb, held),
             name_of(mrb, caller), way_out);
}

/* Rt.wait(op, *args): suspends the task. Nothing may follow the yield. */
static mrb_value rt_wait(mrb_state *mrb, mrb_value self) {
  fb_vm *vm = mrb->ud;
  mrb_int count;
  const mrb_value *args;
  (void)self;
  mrb_get_args(mrb, "*", &args, &count);
  mrb_callinfo *held = blocking_frame(mrb);
  if (held) refuse(mrb, held);
  vm->has_plain = vm->waits = 0;
  vm->out.length = 0;
  tape_counted(mrb, &vm->out, '[', count);
  for (mrb_int i = 0; i < count; i++) tape_value(mrb, &vm->out, args[i], 1);
  vm->waits = 1;
  return fibers_wait(mrb, vm->marker);
}

/* Rt.globals(names, values, known): sets global variables that Ruby cannot assign to ($1, $&). Those without a value become nil, up
 * to the number that was set before (`known`). */
static mrb_value rt_globals(mrb_state *mrb, mrb_value self) {
  mrb_value names, values;
  mrb_int known;
  (void)self;
  mrb_get_args(mrb, "AAi", &names, &values, &known);
  for (mrb_int i = 0; i < RARRAY_LEN(names) && (i < known || i < RARRAY_LEN(values)); i++) {
    mrb_value name = RARRAY_PTR(names)[i];
    if (!mrb_symbol_p(name)) mrb_raise(mrb, E_TYPE_ERROR, "a global variable's name is a Symbol");
    mrb_gv_set(mrb, mrb_symbol(name), i < RARRAY_LEN(values) ? RARRAY_PTR(values)[i] : mrb_nil_value());
  }
  return mrb_nil_value();
}

/* Rt.env(hash): sets the template of all envs; its values are shared by all requests. */
static mrb_value rt_env(mrb_state *mrb, mrb_value self) {
  fb_vm *vm = mrb->ud;
  mrb_value template;
  (void)self;
  mrb_get_args(mrb, "H", &template);
  mrb_ary_push(mrb, vm->roots, template);
  vm->template = template;
  return mrb_nil_value();
}

/* Rt.apps: the handlers by number. */
static mrb_value rt_apps(mrb_state *mrb, mrb_value self) {
  (void)self;
  return ((fb_vm *)mrb->ud)->apps;
}

/* Whether it can be converted to text without calling Ruby. */
static int has_text(mrb_value value) { return mrb_string_p(value) || mrb_symbol_p(value) || mrb_integer_p(value); }

/* Writes its text as a String. */
static void put_as_text(mrb_state *mrb, buffer *to, mrb_value value) {
  if (mrb_string_p(value)) {
    tape_text(mrb, to, 's', RSTRING_PTR(value), RSTRING_LEN(value));
  } else if (mrb_symbol_p(value)) {
    mrb_int length;
    const char *name = mrb_sym_name_len(mrb, mrb_symbol(value), &length);
    tape_text(mrb, to, 's', name, length);
  } else {
    char digits[24], *first = digits + sizeof digits;
    int64_t number = mrb_integer(value);
    uint64_t left = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    do *--first = (char)('0' + left % 10);
    while (left /= 10);
    if (number < 0) *--first = '-';
    tape_text(mrb, to, 's', first, (size_t)(digits + sizeof digits - first));
  }
}

typedef struct {
  buffer *to;
  uint32_t count; /* of texts */
  int odd;
} headers;

static int put_header(mrb_state *mrb, mrb_value key, mrb_value value, void *user) {
  headers *h = user;
  if (mrb_nil_p(value)) return 0;
  h->odd = !has_text(key) || !has_text(value);
  if (h->odd) return 1;
  put_as_text(mrb, h->to, key);
  put_as_text(mrb, h->to, value);
  h->count += 2;
  return 0;
}

/* Rt.plain(response): writes [status, [name, value ...], [parts ...]] as the task's result if the response has the usual shape
 * (Integer, Hash of Strings, Symbols and Integers, Array of Strings), and returns whether it has. Fields whose value is nil are
 * left out. */
static mrb_value rt_plain(mrb_state *mrb, mrb_value self) {
  fb_vm *vm = mrb->ud;
  mrb_value response;
  (void)self;
  mrb_get_args(mrb, "o", &response);
  if (!mrb_array_p(response) || RARRAY_LEN(response) != 3) return mrb_false_value();
  mrb_value status = RARRAY_PTR(response)[0], fields = RARRAY_PTR(response)[1], body = RARRAY_PTR(response)[2];
  if (!mrb_integer_p(status) || !mrb_hash_p(fields) || !mrb_array_p(body)) return mrb_false_value();
  vm->has_plain = vm->waits = 0;
  vm->out.length = 0;
  tape_counted(mrb, &vm->out, '[', 3);
  tape_value(mrb, &vm->out, status, 1);
  headers h = {&vm->out, 0, 0};
  tape_counted(mrb, &vm->out, '[', 0);
  size_t counted = vm->out.length - sizeof h.count;
  mrb_hash_foreach(mrb, mrb_hash_ptr(fields), put_header, &h);
  if (h.odd) return mrb_false_value();
  memcpy(vm->out.data + counted, &h.count, sizeof h.count);
  tape_counted(mrb, &vm->out, '[', RARRAY_LEN(body));
  for (mrb_int i = 0; i < RARRAY_LEN(body); i++) {
    mrb_value part = RARRAY_PTR(body)[i];
    if (!mrb_string_p(part)) return mrb_false_value();
    tape_text(mrb, &vm->out, 's', RSTRING_PTR(part), RSTRING_LEN(part));
  }
  vm->has_plain = 1;
  return mrb_true_value();
}

/* Rt.grant: memory and time to report an exception. */
static mrb_value rt_grant(mrb_state *mrb, mrb_value self) {
  memory_for_report(mrb->ud);
  return self;
}

void methods_define(mrb_state *mrb, struct RClass *rt) {
  mrb_define_module_function(mrb, rt, "call", rt_call, MRB_ARGS_REQ(1) | MRB_ARGS_REST());
  mrb_define_module_function(mrb, rt, "wait", rt_wait, MRB_ARGS_REST());
  mrb_define_module_function(mrb, rt, "apps", rt_apps, MRB_ARGS_NONE());
  mrb_define_module_function(mrb, rt, "env", rt_env, MRB_ARGS_REQ(1));
  mrb_define_module_function(mrb, rt, "plain", rt_plain, MRB_ARGS_REQ(1));
  mrb_define_module_function(mrb, rt, "grant", rt_grant, MRB_ARGS_NONE());
  mrb_define_module_function(mrb, rt, "globals", rt_globals, MRB_ARGS_REQ(3));
}
