/* Parses code, and runs it outside of tasks. What tasks compile (`eval`) has its memory reserved. */
#include "vm.h"

#include <mruby/class.h>
#include <mruby/compile.h>

typedef struct {
  const uint8_t *code;
  size_t length;
  const char *file;
  int run;
} source;

static mrb_value load(mrb_state *mrb, void *user) {
  fb_vm *vm = mrb->ud;
  source *s = user;
  mrbc_context *context = mrbc_context_new(mrb);
  context->capture_errors = 1;
  context->lineno = 1;
  mrbc_filename(mrb, context, s->file);
  struct mrb_parser_state *parser = mrb_parse_nstring(mrb, (const char *)s->code, s->length, context);
  if (!parser) {
    mrbc_context_free(mrb, context);
    mrb_raise(mrb, E_RUNTIME_ERROR, "no memory to read the code");
  }
  if (parser->nerr > 0) {
    struct mrb_parser_message *first = &parser->error_buffer[0];
    const char *text = first->message ? first->message : "syntax error";
    int64_t line = first->lineno, column = first->column;
    vm->out.length = 0;
    tape_counted(mrb, &vm->out, '[', 3);
    tape_text(mrb, &vm->out, 's', "SyntaxError", 11);
    tape_text(mrb, &vm->out, 's', text, strlen(text));
    tape_counted(mrb, &vm->out, '[', 2);
    tape_tag(mrb, &vm->out, 'i');
    tape_put(mrb, &vm->out, &line, sizeof line);
    tape_tag(mrb, &vm->out, 'i');
    tape_put(mrb, &vm->out, &column, sizeof column);
    mrb_parser_free(parser);
    mrbc_context_free(mrb, context);
    return mrb_undef_value();
  }
  mrb_value value = mrb_nil_value();
  if (s->run) {
    value = mrb_load_exec(mrb, parser, context); /* frees the parser */
  } else {
    mrb_parser_free(parser);
  }
  mrbc_context_free(mrb, context);
  if (mrb->exc) {
    mrb_value exception = mrb_obj_value(mrb->exc);
    mrb->exc = NULL;
    mrb_exc_raise(mrb, exception);
  }
  return value;
}

static int run_source(fb_vm *vm, const uint8_t *code, size_t length, const char *file, int run) {
  source s = {code, length, file, run};
  mrb_value value;
  memory_for_driver(vm);
  int state = vm_enter(vm, load, &s, &value);
  return state == FB_DONE && mrb_undef_p(value) ? FB_RAISED : state;
}

int fb_eval(fb_vm *vm, const uint8_t *code, size_t length, const char *file) {
  return run_source(vm, code, length, file, 1);
}

int fb_check(fb_vm *vm, const uint8_t *code, size_t length, const char *file) {
  return run_source(vm, code, length, file, 0);
}

/* The compiler does not survive that its memory is refused. It takes so much for the code, for each byte of it, and for each block,
 * method and class that it is in at a time. */
#define ROOM_TO_COMPILE ((size_t)64 << 10)
#define ROOM_FOR_BYTE ((size_t)64)
#define ROOM_FOR_SCOPE ((size_t)20 << 10)
#define PIECES_TO_COMPILE 256

/* More keywords than this are hardly within each other. */
#define NESTED_KEYWORDS 32

static int begins_with(const char *at, const char *end, const char *word) {
  size_t length = strlen(word);
  return (size_t)(end - at) >= length && memcmp(at, word, length) == 0;
}

/* How many scopes are open at a time, at most. */
static size_t scopes_of(const char *code, size_t length) {
  size_t open = 0, most = 0, keywords = 0;
  for (const char *at = code, *end = code + length; at < end; at++) {
    if (*at == '{' && ++open > most) most = open;
    if (*at == '}' && open > 0) open--;
    if (begins_with(at, end, "do") || begins_with(at, end, "def") || begins_with(at, end, "class") || begins_with(at, end, "module")) {
      keywords++;
    }
  }
  return 1 + most + (keywords < NESTED_KEYWORDS ? keywords : NESTED_KEYWORDS);
}

static void reserve_to_compile(mrb_state *mrb) {
  const mrb_value *args;
  mrb_int count;
  mrb_get_args(mrb, "*", &args, &count);
  if (count == 0 || !mrb_string_p(args[0])) return;
  size_t length = (size_t)RSTRING_LEN(args[0]);
  memory_reserve(mrb, PIECES_TO_COMPILE,
                 ROOM_TO_COMPILE + ROOM_FOR_BYTE * length + ROOM_FOR_SCOPE * scopes_of(RSTRING_PTR(args[0]), length));
}

#define COMPILES(number)                                              \
  static mrb_value compile_##number(mrb_state *mrb, mrb_value self) { \
    reserve_to_compile(mrb);                                          \
    return ((fb_vm *)mrb->ud)->compilers[number](mrb, self);          \
  }
COMPILES(0)
COMPILES(1)
COMPILES(2)
COMPILES(3)

void source_define(mrb_state *mrb) {
  static const struct {
    const char *of, *name;
    mrb_func_t with;
  } methods[COMPILERS] = {{"Kernel", "eval", compile_0},
                          {"BasicObject", "instance_eval", compile_1},
                          {"Module", "class_eval", compile_2},
                          {"Module", "module_eval", compile_3}};
  fb_vm *vm = mrb->ud;
  for (int i = 0; i < COMPILERS; i++) {
    struct RClass *of = mrb_class_ptr(mrb_const_get(mrb, mrb_obj_value(mrb->object_class), mrb_intern_cstr(mrb, methods[i].of)));
    struct RClass *found = of;
    mrb_method_t method = mrb_method_search_vm(mrb, &found, mrb_intern_cstr(mrb, methods[i].name));
    if (MRB_METHOD_UNDEF_P(method) || !MRB_METHOD_CFUNC(method)) continue;
    vm->compilers[i] = MRB_METHOD_CFUNC(method);
    mrb_define_method(mrb, of, methods[i].name, methods[i].with, MRB_ARGS_ANY() | MRB_ARGS_BLOCK());
  }
}
