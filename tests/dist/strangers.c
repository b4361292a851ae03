/* The rendezvous of ranks (dist/rendezvous.h) where other processes reach the port of rank 0, or
 * are at its address: they take no place, get nothing, and do not end the rendezvous. */
#include "meeting.h"

#include "base/sha256.h"

static int connect_as_stranger(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1))};
    for (int i = 0; i < 500; i++) {
        const int file = socket(AF_INET, SOCK_STREAM, 0);
        if (!connect(file, (struct sockaddr *)&at, sizeof at)) return file;
        close(file);
        poll(NULL, 0, 10);
    }
    return -1;
}

/* Sends a greeting with ID bytes as a process does that has this token.  Returns the socket. */
static int greet(uint32_t version, uint32_t rank, uint32_t size, const char *token)
{
    unsigned char greeting[72] = "weber-rv";
    wb__hmac h;
    const int file = connect_as_stranger();
    wb__rendezvous_put(greeting + 8, version);
    wb__rendezvous_put(greeting + 12, rank);
    wb__rendezvous_put(greeting + 16, size);
    wb__rendezvous_put(greeting + 20, ID);
    wb__hmac_begin(&h, token, strlen(token));
    wb__hmac_add(&h, greeting, 40);
    wb__hmac_end(&h, greeting + 40);
    return send(file, greeting, sizeof greeting, 0) == sizeof greeting ? file : -1;
}

/* Whether rank 0 closes the connection and has sent nothing. */
static bool gets_nothing(int file)
{
    char byte;
    return file >= 0 && recv(file, &byte, 1, 0) <= 0;
}

/* Rank 0 and, when `stranger` has returned, the last rank. */
static void run_after(bool (*stranger)(void))
{
    int status, ends[2];
    char byte = 0;
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    const pid_t rank_0 = fork();
    if (!rank_0) {
        alarm(60);
        be(&members[0], ID);
        _exit(0);
    }
    const pid_t other = fork();
    if (!other) {
        alarm(60);
        byte = stranger();
        _exit(write(ends[1], &byte, 1) != 1);
    }
    assert_int_equal(read(ends[0], &byte, 1), 1);
    members[0].rank = -1;               /* it has been started */
    for (int i = 1; i < n_members; i++) be(&members[i], ID);
    assert_int_equal(waitpid(rank_0, &status, 0), rank_0);
    assert_int_equal(waitpid(other, &status, 0), other);
    close(ends[0]);
    close(ends[1]);
    assert_true(byte);
    for (int i = 0; i < n_members; i++) expect_bytes(&members[i], ID);
}

/* A packet of version 1 is dropped at once, one of rank 1 whose end does not come in time. */
static bool speak_another_version(void)
{
    static const char old[24] = "weber-rv\0\0\0\1\0\0\0\7\0\0\0\115";
    static const char half[24] = "weber-rv\0\0\0\2\0\0\0\1\0\0\0\2\0\0\0\200";
    const int first = connect_as_stranger(), second = connect_as_stranger();
    const int other = greet(3, 1, 2, "");
    return send(first, old, 24, 0) == 24 && send(second, half, 24, 0) == 24 &&
           gets_nothing(first) && gets_nothing(second) && gets_nothing(other);
}

/* Greetings that are right but for the token, of a rank of this size and of another. */
static bool have_no_token(void)
{
    return gets_nothing(greet(WB__RENDEZVOUS_VERSION, 1, 2, "")) &&
           gets_nothing(greet(WB__RENDEZVOUS_VERSION, 1, 2, "a secre")) &&
           gets_nothing(greet(WB__RENDEZVOUS_VERSION, 1, 77, "b secret")) &&
           speak_another_version();
}

TEST(strangers_take_no_place)
{
    for (int token = 0; token < 2; token++) {
        begin(TCP);
        if (token) setenv("WEBER_RENDEZVOUS_TOKEN", "a secret", 1);
        add(0, 2, 20, 0);
        add(1, 2, 20, 0);
        run_after(token ? have_no_token : speak_another_version);
        unsetenv("WEBER_RENDEZVOUS_TOKEN");
    }
}

/* Another token is named on both sides, since a user may have set two. */
TEST(another_token)
{
    begin(TCP);
    add(0, 2, 1, 0);
    fflush(NULL);
    const pid_t other = fork();
    if (!other) {
        unsigned char bytes[ID] = {0};
        const wb__rendezvous_options o = {address, 1, 2, 0.8};
        setenv("WEBER_RENDEZVOUS_TOKEN", "one", 1);
        const int status = wb__rendezvous(&o, bytes, ID);
        if (status != WB_ERROR_DEVICE || !strstr(wb_error(), "WEBER_RENDEZVOUS_TOKEN")) _exit(1);
        _exit(bytes[0] != 0);
    }
    setenv("WEBER_RENDEZVOUS_TOKEN", "another", 1);
    run(ID);
    unsetenv("WEBER_RENDEZVOUS_TOKEN");
    int status;
    assert_int_equal(waitpid(other, &status, 0), other);
    assert_int_equal(status, 0);
    expect_error(&members[0], FACTS(address, "rank 1", "WEBER_RENDEZVOUS_TOKEN"));
}

/* A process at rank 0's port that answers in the right form, but has no token, gives a rank no
 * bytes. */
TEST(a_stranger_at_the_port)
{
    static const char answer[48 + ID] = "weber-rv\0\0\0\0\0\0\0\200";
    n_members = 0;
    const int server = bind_port("127.0.0.1");
    assert_int_equal(listen(server, 8), 0);
    fflush(NULL);
    const pid_t child = fork();
    if (!child)
        for (;;) {
            char greeting[72];
            const int file = accept(server, NULL, NULL);
            if (recv(file, greeting, sizeof greeting, MSG_WAITALL) != sizeof greeting) _exit(1);
            if (send(file, answer, sizeof answer, 0) < 0) _exit(1);
            close(file);
        }
    for (int token = 0; token < 2; token++) {
        n_members = 0;
        if (token) setenv("WEBER_RENDEZVOUS_TOKEN", "a secret", 1);
        add(1, 2, 0.5, 0);
        members[0].bytes[0] = 0;
        run(ID);
        expect_error(&members[0], FACTS(address, "rank 1 of 2", "no answer"));
    }
    unsetenv("WEBER_RENDEZVOUS_TOKEN");
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(server);
}

/* The reason of the first attempts is reported also where the last one was cut short. */
TEST(a_closed_port)
{
    for (int i = 0; i < 3; i++) {
        begin(TCP);
        add(1, 2, 0.2 + 0.1 * i, 0);
        run(ID);
        expect_error(&members[0], FACTS(address, "rank 1 of 2", "Connection refused"));
    }
}

TEST(a_folder_that_is_missing)
{
    char text[sizeof address];
    unsigned char bytes[ID];
    for (int file = 0; file < 2; file++) {
        snprintf(text, sizeof text, "%s/%s", folder, file ? "plain" : "none");
        if (file) write_whole(text, (const unsigned char *)"text\n", 5);
        snprintf(text, sizeof text, "file:%s/%s/x", folder, file ? "plain" : "none");
        for (int rank = 0; rank < 2; rank++) {
            const wb__rendezvous_options o = {text, rank, 2, 1e9};      /* it does not wait */
            FAILS(wb__rendezvous(&o, bytes, ID), WB_ERROR_FILE, file ? "plain" : "none",
                  rank ? "rank 1 of 2" : "rank 0 of 2",
                  file ? "Not a directory" : "No such file");
        }
    }
    snprintf(text, sizeof text, "%s/plain", folder);
    unlink(text);
    wb_clear_error();
}

/* Clients that are no ranks: one that speaks another language, one that is silent, one that stops
 * in its greeting, one of a rank that cannot be, and many at once. */
TEST(foreign_clients)
{
    enum { MANY = 100 };
    begin(TCP);
    add(0, 3, 20, 0);
    add(1, 3, 20, 0);
    add(2, 3, 20, 700);
    fflush(NULL);
    const pid_t stranger = fork();
    if (!stranger) {
        alarm(60);
        const int silent = connect_as_stranger(), half = connect_as_stranger();
        const int other = connect_as_stranger();
        const int impossible = greet(WB__RENDEZVOUS_VERSION, 7, 3, "");
        bool good = silent >= 0 && half >= 0 && send(half, "weber-", 6, 0) == 6;
        good = good && send(other, "GET / HTTP/1.0\r\n\r\n", 18, 0) == 18;
        good = good && gets_nothing(other) && gets_nothing(impossible);
        for (int i = 0; i < MANY; i++) good = good && connect_as_stranger() >= 0;
        poll(NULL, 0, 1000);
        _exit(good ? 0 : 1);
    }
    run(ID);
    for (int r = 0; r < 3; r++) {
        expect_bytes(&members[r], ID);
        assert_true(members[r].took < 10);
    }
    int status;
    assert_int_equal(waitpid(stranger, &status, 0), stranger);
    assert_int_equal(status, 0);
}

/* Another program listens at the address, and answers with something else. */
TEST(a_foreign_server)
{
    n_members = 0;
    const int server = bind_port("127.0.0.1");
    assert_int_equal(listen(server, 8), 0);
    fflush(NULL);
    const pid_t child = fork();
    if (!child)
        for (;;) {
            const int file = accept(server, NULL, NULL);
            if (write(file, "220 mail.example ESMTP service\r\n", 32) < 0) _exit(1);
            close(file);
        }
    add(0, 2, 5, 0);
    add(1, 2, 0.5, 0);
    run(ID);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(server);
    expect_error(&members[0], FACTS(address, "rank 0", "listen"));
    expect_error(&members[1], FACTS(address, "rank 1 of 2", "rank 0"));
}

int main(void) { return run_cases(make_meeting, remove_folder); }
