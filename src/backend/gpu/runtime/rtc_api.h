/* Compiles a kernel's text with a run-time compiler.  The compilers of two vendors have the same
 * functions, with other prefixes and types.  A driver's file includes this text after it has
 * defined:
 *
 *   RTC_TABLE, RTC_PROGRAM   the types of the function table and of a program's handle
 *   RTC_NAME                 the prefix of the functions' names, for messages
 *   RTC_FILE                 the file name that the compiler's messages show
 *   RTC_NO_MEMORY, RTC_INVALID_OPTION       codes of the compiler
 *   RTC_LOAD_FAILED(d, code, options)   reports that the driver rejects an image; returns a status
 *   RTC_SIZE(d, f, program, bytes), RTC_IMAGE(d, f, program, image)     call the functions that
 *                            return the size of the compiled image, and the image */

enum { RTC_OPTIONS = 8 };

static int rtc_failed(const wb__gpu_device *d, const RTC_TABLE *f, const char *call, int code,
                      const char *what)
{
    return wb__fail(code == RTC_NO_MEMORY ? WB_ERROR_MEMORY : WB_ERROR_DEVICE,
                    "%s:%d: " RTC_NAME "%s: %s (%d): %s", d->driver->backend->tag, d->base.ordinal,
                    call, f->GetErrorString((unsigned)code), code, what);
}

/* Reports the compiler's messages.  The error message has their beginning.  With WEBER_DEBUG=kernel
 * the log has all of them.  Returns the code of the error. */
static int rtc_compile_failed(const wb__gpu_device *d, const RTC_TABLE *f, RTC_PROGRAM program,
                              int code, const char *text)
{
    size_t bytes = 0;
    char *log = NULL;
    if (!f->GetProgramLogSize(program, &bytes) && bytes) log = wb__alloc_zero(bytes + 1, 1);
    if (log && f->GetProgramLog(program, log)) log[0] = 0;
    wb__gpu_log_build(d, text, log);
    const int status = rtc_failed(d, f, "CompileProgram", code,
                                  log && *log ? log : "the compiler gave no reason");
    wb__free(log);
    return status;
}

/* Sets *image to the compiler's output, which the caller frees.  Returns 0 or an error code. */
static int rtc_image(const wb__gpu_device *d, const RTC_TABLE *f, RTC_PROGRAM program, void **image,
                     size_t *bytes)
{
    int code = (int)RTC_SIZE(d, f, program, bytes);
    if (!code && !(*image = wb__alloc(*bytes + 1))) return WB_ERROR_MEMORY;
    if (!code) code = (int)RTC_IMAGE(d, f, program, *image);
    if (!code) return 0;
    wb__free(*image);
    *image = NULL;
    return rtc_failed(d, f, "GetCode", code, "the compiled program");
}

/* Compiles the text of a kernel to *image, which the caller frees.  Spaces separate the options.
 * Returns 0 or an error code; WB_ERROR_UNSUPPORTED: the compiler does not support the options. */
static int rtc_compile(const wb__gpu_device *d, const RTC_TABLE *f, const char *text,
                       const char *options, void **image, size_t *bytes)
{
    const char *list[RTC_OPTIONS];
    char words[256], *rest = NULL;
    int n = 0;
    RTC_PROGRAM program = NULL;
    snprintf(words, sizeof words, "%s", options);
    for (char *word = strtok_r(words, " ", &rest); word && n < RTC_OPTIONS;
         word = strtok_r(NULL, " ", &rest))
        list[n++] = word;
    int code = (int)f->CreateProgram(&program, text, RTC_FILE, 0, NULL, NULL);
    if (code) return rtc_failed(d, f, "CreateProgram", code, "a kernel's text");
    code = (int)f->CompileProgram(program, n, list);
    int status = code ? rtc_compile_failed(d, f, program, code, text)
                      : rtc_image(d, f, program, image, bytes);
    if (code == RTC_INVALID_OPTION) status = WB_ERROR_UNSUPPORTED;
    f->DestroyProgram(&program);
    return status;
}

/* The function `compile` of wb__gpu_driver. */
static int rtc_make_program(wb__gpu_device *d, const RTC_TABLE *f, const char *text,
                            const char *options, void **program, void **image, size_t *bytes)
{
    const int status = rtc_compile(d, f, text, options, image, bytes);
    const int code = status ? 0 : d->driver->load_image(d, *image, *bytes, options, program);
    if (!code) return status;
    *program = NULL;
    return RTC_LOAD_FAILED(d, code, options);
}
