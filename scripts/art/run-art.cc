// run-art: boots ART in this process and runs MainClass.main(args).
//   run-art [-v] [-X... | -D...]... CLASSPATH MainClass [args]
// Environment: ART_HOME = folder with lib/ (libart, natives) and core.jar; default: the folder of this
// program.
//   ART_HEAP (256m), ART_AGENT = library that is dlopened before the VM starts (an LD_PRELOAD library is
//   there anyway). An agent may export  void art_agent_vm(JavaVM*, JNIEnv*)  (called when the VM is up,
//   before main) and void art_agent_end(JavaVM*, JNIEnv*)  (called after main returned).
#include <dlfcn.h>
#include <jni.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <string>
#include <vector>

static double now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}
static void *open_lib(const std::string &p, int f) {
    void *h = dlopen(p.c_str(), RTLD_NOW | f);
    if (!h) {
        fprintf(stderr, "run-art: %s\n", dlerror());
        exit(2);
    }
    return h;
}
// Debian's ART 14 is built by GCC with libstdc++, which uncovers two faults. One:
// ArtMethod::InvokeStatic<'L'>() without arguments passes sizeof(std::array<uint32_t, 0>) as the size of the
// arguments, which is 1 with libstdc++, and a null pointer; art_quick_invoke_(static_)stub then copies one
// byte from address 0. The stubs get `and $-4,ecx` (movq $0,(rsp); mov r10d,ecx becomes andq $0,(rsp); mov
// r10d,ecx; and $-4,ecx: the same length).
static int patch_stubs(dl_phdr_info *i, size_t, void *) {
    if (!strstr(i->dlpi_name, "/libart.so")) return 0;
    static const unsigned char a[] = {0x48, 0xc7, 4, 0x24, 0, 0, 0, 0, 0x44, 0x89, 0xd1},
                               b[] = {0x48, 0x83, 0x24, 0x24, 0, 0x44, 0x89, 0xd1, 0x83, 0xe1, 0xfc};
    int n = 0;
    for (int k = 0; k < i->dlpi_phnum; k++) {
        auto &h = i->dlpi_phdr[k];
        if (h.p_type != PT_LOAD || !(h.p_flags & PF_X)) continue;
        auto p = (unsigned char *)(i->dlpi_addr + h.p_vaddr), end = p + h.p_memsz;
        while ((p = (unsigned char *)memmem(p, end - p, a, sizeof a))) {
            uintptr_t page = (uintptr_t)p & ~4095ul;
            mprotect((void *)page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC);
            memcpy(p, b, sizeof b);
            mprotect((void *)page, 8192, PROT_READ | PROT_EXEC);
            p += sizeof b;
            n++;
        }
    }
    if (n != 2) fprintf(stderr, "run-art: %d invoke stubs patched, 2 expected\n", n);
    return 1;
}
// The other: it is built without Android's -ftrivial-auto-var-init=zero, and LinkMethods relies on it: for
// classes of few methods it takes a bit vector from the stack without clearing it (kMaxStackBuferSize words),
// and random methods miss in the vtable. The limit of 256 becomes 0 in memory: the vector then comes from the
// (zeroed) arena. One instruction, cmp $0x100,rax.
static void fix_link_methods(void *art) {
    auto f = (unsigned char *)dlsym(
        art, "_ZN3art11ClassLinker17LinkMethodsHelperILNS_11PointerSizeE8EE11LinkMethodsEPNS_6ThreadENS_"
             "6HandleINS_6mirror5ClassEEENS6_INS7_11ObjectArrayIS8_EEEEPbPPNS_9ArtMethodE");
    if (!f) return; // ART 11
    dl_iterate_phdr(patch_stubs, nullptr);
    for (unsigned char *p = f; p < f + 0x8000; p++)
        if (!memcmp(p, "\x48\x3d\x00\x01\x00\x00", 6)) {
            uintptr_t page = (uintptr_t)p & ~4095ul;
            mprotect((void *)page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC);
            p[3] = 0;
            mprotect((void *)page, 8192, PROT_READ | PROT_EXEC);
            return;
        }
    fprintf(stderr, "run-art: ART 14's LinkMethods looks different: not patched\n");
}
typedef void (*Hook)(JavaVM *, JNIEnv *);

int main(int argc, char **argv) {
    double t0 = now();
    std::string home;
    if (const char *h = getenv("ART_HOME"))
        home = h;
    else {
        char b[PATH_MAX];
        ssize_t n = readlink("/proc/self/exe", b, sizeof b - 1);
        b[n < 0 ? 0 : n] = 0;
        home = b;
        home.resize(home.rfind('/'));
    }
    std::vector<std::string> opts;
    bool verbose = false;
    int i = 1;
    for (; i < argc && argv[i][0] == '-'; i++) {
        if (!strcmp(argv[i], "-v"))
            verbose = true;
        else
            opts.push_back(argv[i]);
    }
    if (argc - i < 2) {
        fprintf(stderr, "usage: run-art [-v] [-X... | -D...] CLASSPATH MainClass [args]\n");
        return 2;
    }
    std::string cp = argv[i], main_class = argv[i + 1];
    std::string core = home + "/core.jar";
    setenv("ANDROID_ROOT", (home + "/root").c_str(), 0);
    setenv("ANDROID_DATA", (home + "/data").c_str(), 0);
    setenv("ANDROID_ART_ROOT", (home + "/root").c_str(), 0);
    setenv("ANDROID_I18N_ROOT", (home + "/root").c_str(), 0);
    setenv("ANDROID_TZDATA_ROOT", (home + "/root").c_str(), 0);
    void *art = open_lib(home + "/lib/libart.so.0", RTLD_GLOBAL);
    fix_link_methods(art);
    for (const char *l : {"libicu_jni.so", "libjavacore.so", "libopenjdk.so"})
        open_lib(home + "/lib/" + l, RTLD_GLOBAL);
    void *agent = nullptr;
    if (const char *a = getenv("ART_AGENT")) agent = open_lib(a, RTLD_GLOBAL);
    const char *heap = getenv("ART_HEAP");
    std::vector<std::string> all{"-Xbootclasspath:" + core,
                                 "-Xbootclasspath-locations:" + core,
                                 "-Ximage:/nonexistent/boot.art",
                                 "-Xmx" + std::string(heap ? heap : "256m"),
                                 "-Xusejit:false",
                                 "-Xverify:none",
                                 "-Xnorelocate",
                                 "-Djava.class.path=" + cp,
                                 "-Djava.library.path=" + home + "/lib"};
    if (!dlsym(art, "artJniMethodStart"))
        all.push_back("-Xnoimage-dex2oat"); // ART 11 would try to start dex2oat
    for (auto &o : opts) all.push_back(o);
    std::vector<JavaVMOption> vo;
    for (auto &o : all) vo.push_back({(char *)o.c_str(), nullptr});
    JavaVMInitArgs args{JNI_VERSION_1_6, (jint)vo.size(), vo.data(), JNI_FALSE};
    auto create = (jint (*)(JavaVM **, JNIEnv **, void *))dlsym(art, "JNI_CreateJavaVM");
    JavaVM *vm = nullptr;
    JNIEnv *env = nullptr;
    jint rc = create ? create(&vm, &env, &args) : -99;
    if (rc) {
        fprintf(stderr, "run-art: JNI_CreateJavaVM: %d\n", rc);
        return 3;
    }
    if (verbose) fprintf(stderr, "run-art: VM up after %.0f ms\n", now() - t0);
    auto hook = [&](const char *n) {
        Hook h = (Hook)dlsym(agent ? agent : RTLD_DEFAULT, n);
        if (h) h(vm, env);
    };
    hook("art_agent_vm");
    int ret = 0;
    // the system class loader sees CLASSPATH; FindClass without a Java caller asks it
    std::string cn = main_class;
    for (auto &c : cn)
        if (c == '.') c = '/';
    jclass c = env->FindClass(cn.c_str());
    jmethodID m = c ? env->GetStaticMethodID(c, "main", "([Ljava/lang/String;)V") : nullptr;
    if (m) {
        jobjectArray a = env->NewObjectArray(argc - i - 2, env->FindClass("java/lang/String"), nullptr);
        for (int k = i + 2; k < argc; k++)
            env->SetObjectArrayElement(a, k - i - 2, env->NewStringUTF(argv[k]));
        env->CallStaticVoidMethod(c, m, a);
    }
    if (env->ExceptionCheck()) {
        env->ExceptionDescribe();
        env->ExceptionClear();
        ret = 1;
    }
    hook("art_agent_end");
    fflush(nullptr);
    // DestroyJavaVM waits for non-daemon threads; an imageless VM then shuts down in an orderly way
    vm->DetachCurrentThread();
    vm->DestroyJavaVM();
    if (verbose) fprintf(stderr, "run-art: done after %.0f ms, exit status %d\n", now() - t0, ret);
    fflush(nullptr);
    return ret;
}
