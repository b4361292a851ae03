/* The rendezvous of ranks (dist/rendezvous.h), by processes of this machine, and their places
 * (dist/place.h).  `rendezvous rank` is a rank of `weber launch`; for check_launch.py. */
#include "meeting.h"

#include "dist/place.h"

#include <dirent.h>

/* Nothing is left in the folder but what process_folder has put there. */
static void expect_no_files(void)
{
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        if (strstr(e->d_name, "meeting")) fail_msg("%s is left", e->d_name);
    closedir(d);
}

/* ---- all ranks come -------------------------------------------------------------------------- */

TEST(bytes_reach_all_ranks)
{
    const int sizes[] = {1, 2, 5};
    const size_t lengths[] = {ID, 0, MOST_BYTES};       /* the last is more than a socket holds */
    for (form f = TCP; f < FORMS; f++)
        for (int k = 0; k < 3; k++)
            for (int late = 0; late < 2; late++) {      /* rank 0 is first, or last */
                begin(f);
                for (int r = 0; r < sizes[k]; r++)
                    add(r, sizes[k], 20, (r ? !late : late) * 60);
                run(lengths[k]);
                for (int r = 0; r < sizes[k]; r++) expect_bytes(&members[r], lengths[k]);
                expect_no_files();
            }
}

TEST(hosts_by_name_and_ipv6)
{
    const char *const hosts[] = {"localhost", "[::1]", "[0:0:0:0:0:0:0:1]"};
    const int ipv6 = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    const bool has_ipv6 = ipv6 >= 0 && !bind(ipv6, (struct sockaddr *)&at, sizeof at);
    if (ipv6 >= 0) close(ipv6);
    if (!has_ipv6) print_message("SKIP: IPv6: this machine has none\n");
    for (int k = 0; k < (has_ipv6 ? 3 : 1); k++) {
        n_members = 0;
        close(bind_port(hosts[k]));
        for (int r = 0; r < 3; r++) add(r, 3, 20, 0);
        run(ID);
        for (int r = 0; r < 3; r++) expect_bytes(&members[r], ID);
    }
}

/* A rank that dies and is started again is no second process. */
TEST(a_rank_that_comes_again)
{
    begin(TCP);
    add(0, 3, 20, 0);
    add(1, 3, 20, 0);
    members[1].dies = true;
    add(1, 3, 20, 600);
    add(2, 3, 20, 800);
    run(ID);
    expect_bytes(&members[0], ID);
    expect_bytes(&members[2], ID);
    expect_bytes(&members[3], ID);
}

/* ---- ranks that do not fit ------------------------------------------------------------------- */

TEST(missing_ranks)
{
    for (form f = TCP; f < FORMS; f++) {
        begin(f);
        add(0, 5, 0.5, 0);
        add(1, 5, 0.5, 0);
        add(3, 5, 0.5, 0);
        run(ID);
        expect_error(&members[0], FACTS(address, "2", "4", "0.5 s"));
        assert_null(strstr(members[0].error, "1, "));
        expect_error(&members[1], FACTS(address, "rank 1 of 5", "rank 0", "2, 4"));
        expect_error(&members[2], FACTS(address, "rank 3 of 5", "rank 0", "2, 4"));
        for (int i = 0; i < 3; i++) assert_true(members[i].took > 0.45 && members[i].took < 10);
        expect_no_files();
    }
}

TEST(a_missing_rank_0)
{
    for (form f = TCP; f < FORMS; f++) {
        begin(f);
        add(1, 2, 0.3, 0);
        run(ID);
        expect_error(&members[0], FACTS(address, "rank 1 of 2", "rank 0", "0.3 s"));
        assert_true(members[0].took > 0.27 && members[0].took < 10);
        expect_no_files();
    }
}

TEST(another_size)
{
    for (form f = TCP; f < FORMS; f++) {
        begin(f);
        add(0, 3, 20, 0);
        add(1, 3, 20, 0);
        add(2, 4, 20, 300);
        run(ID);
        expect_error(&members[0], FACTS(address, "rank 2", "4", "3"));
        expect_error(&members[1], FACTS(address, "rank 1 of 3", "rank 2", "4"));
        expect_error(&members[2], FACTS(address, "rank 2 of 4", "4 ranks", "3"));
        for (int i = 0; i < 3; i++) assert_true(members[i].took < 10);
        expect_no_files();
    }
}

TEST(two_processes_of_one_rank)
{
    for (form f = TCP; f < FORMS; f++) {
        begin(f);
        add(0, 3, 20, 0);
        add(1, 3, 1, 0);
        add(1, 3, 1, 300);
        run(ID);
        expect_error(&members[0], FACTS(address, "two processes", "rank 1"));
        expect_error(&members[1], FACTS(address, "two processes", "rank 1 of 3"));
        expect_error(&members[2], FACTS(address, "rank 1 of 3"));
        assert_true(members[0].took < 10);
        expect_no_files();
    }
}

TEST(another_number_of_bytes)
{
    for (form f = TCP; f < FORMS; f++) {
        begin(f);
        add(0, 2, 20, 0);
        fflush(NULL);
        const pid_t other = fork();
        if (!other) {
            const wb__rendezvous_options o = {address, 1, 2, 20};
            unsigned char bytes[ID + 1];
            _exit(wb__rendezvous(&o, bytes, ID + 1) == WB_ERROR_DEVICE ? 0 : 1);
        }
        run(ID);
        int status;
        assert_int_equal(waitpid(other, &status, 0), other);
        assert_int_equal(status, 0);
        expect_error(&members[0], FACTS(address, "rank 1", "version"));
    }
}

/* ---- files of an earlier run ----------------------------------------------------------------- */

static size_t read_whole(const char *path, unsigned char *to, size_t capacity)
{
    FILE *f = fopen(path, "rb");
    if (!f) return 0;
    const size_t n = fread(to, 1, capacity, f);
    fclose(f);
    return n;
}

/* Copies the files of a run whose rank 1 is this test, and puts them back: the next run must not
 * take the bytes of the first one. */
TEST(files_of_an_earlier_run)
{
    static unsigned char call[400], result[400];
    unsigned char answer[52] = "weber-rf\0\0\0\2\0\0\0\2\0\0\0\200";
    char paths[3][120], part[120];
    size_t sizes[3] = {0, sizeof answer, 0};
    int status;
    snprintf(paths[0], sizeof *paths, "%s/meeting.0", folder);
    snprintf(paths[1], sizeof *paths, "%s/meeting.1", folder);
    snprintf(paths[2], sizeof *paths, "%s/meeting", folder);
    snprintf(part, sizeof part, "%s/part", folder);
    begin(FILES);
    fflush(NULL);
    const pid_t rank_0 = fork();
    if (!rank_0) {
        unsigned char old[ID];
        const wb__rendezvous_options o = {address, 0, 2, 20};
        memset(old, 0xee, sizeof old);
        _exit(wb__rendezvous(&o, old, ID) != 0);
    }
    for (int i = 0; i < 2000 && !sizes[0]; i++, poll(NULL, 0, 5))
        sizes[0] = read_whole(paths[0], call, sizeof call);
    memcpy(answer + 20, call + 16, 16);         /* the numbers of rank 0 and of rank 1 */
    memset(answer + 36, 0xaa, 16);
    write_whole(part, answer, sizeof answer);
    assert_int_equal(rename(part, paths[1]), 0);
    for (int i = 0; i < 2000 && !sizes[2]; i++, poll(NULL, 0, 5))
        sizes[2] = read_whole(paths[2], result, sizeof result);
    assert_int_equal(unlink(paths[1]), 0);      /* the receipt */
    assert_int_equal(waitpid(rank_0, &status, 0), rank_0);
    assert_int_equal(status, 0);
    expect_no_files();
    assert_true(sizes[0] && sizes[2] > ID);
    assert_int_equal(result[sizes[2] - 1], 0xee);
    for (int late = 0; late < 2; late++) {
        write_whole(paths[0], call, sizes[0]);
        write_whole(paths[1], answer, sizes[1]);
        write_whole(paths[2], result, sizes[2]);
        begin(FILES);
        add(0, 2, 20, late ? 200 : 0);
        add(1, 2, 20, late ? 0 : 200);
        run(ID);
        for (int r = 0; r < 2; r++) expect_bytes(&members[r], ID);
        expect_no_files();
    }
    write_whole(paths[1], answer, sizes[1]);    /* an old answer is not a rank */
    begin(FILES);
    add(0, 2, 0.5, 0);
    run(ID);
    expect_error(&members[0], FACTS(address, "rank 1"));
    unlink(paths[1]);
}

/* Rank 0 is this test.  A rank does not take a file that has more bytes than its head counts. */
TEST(a_result_that_is_too_long)
{
    unsigned char call[32] = "weber-rf\0\0\0\2\0\0\0\2", answer[60];
    unsigned char result[20 + 16 + ID + 1] = "weber-rf\0\0\0\0\0\0\0\2\0\0\0\200";
    char path[120], part[120];
    int status;
    snprintf(part, sizeof part, "%s/part", folder);
    memset(call + 16, 0x11, 16);
    memset(result + 36, 0xee, ID + 1);
    for (size_t more = 0; more < 2; more++) {
        begin(FILES);
        add(1, 2, 0.5, 0);
        snprintf(path, sizeof path, "%s/meeting.0", folder);
        write_whole(path, call, sizeof call);
        fflush(NULL);
        const pid_t rank_1 = fork();
        if (!rank_1) {
            alarm(60);
            be(&members[0], ID);
            _exit(0);
        }
        size_t n = 0;
        snprintf(path, sizeof path, "%s/meeting.1", folder);
        for (int i = 0; i < 2000 && !n; i++, poll(NULL, 0, 5))
            n = read_whole(path, answer, sizeof answer);
        assert_int_equal(n, 52);
        memcpy(result + 20, answer + 36, 16);      /* the number of rank 1 */
        write_whole(part, result, sizeof result - 1 + more);
        snprintf(path, sizeof path, "%s/meeting", folder);
        assert_int_equal(rename(part, path), 0);
        assert_int_equal(waitpid(rank_1, &status, 0), rank_1);
        assert_int_equal(status, 0);
        if (more) expect_error(&members[0], FACTS(address, "has waited"));
        else assert_int_equal(members[0].status, 0);
        assert_int_equal(members[0].bytes[0], more ? 0 : 0xee);
        assert_int_equal(unlink(path), 0);
        snprintf(path, sizeof path, "%s/meeting.0", folder);
        assert_int_equal(unlink(path), 0);
        expect_no_files();
    }
}

/* Files of the program that have the same names stay. */
TEST(files_of_the_program)
{
    char path[120];
    unsigned char text[8];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/meeting%s", folder, i == 2 ? "" : i ? ".1" : ".0");
        write_whole(path, (const unsigned char *)"text\n", 5);
        begin(FILES);
        add(0, 2, i == 1 ? 0.5 : 20, 0);
        if (i == 1) add(1, 2, 20, 0);
        run(ID);
        assert_int_equal(members[i == 1].status, WB_ERROR_FILE);
        assert_true(has_facts(members[i == 1].error, FACTS(path, "WEBER_RENDEZVOUS")));
        assert_int_equal(read_whole(path, text, sizeof text), 5);
        assert_memory_equal(text, "text\n", 5);
        assert_int_equal(unlink(path), 0);
        expect_no_files();
    }
}

/* ---- wrong arguments ------------------------------------------------------------------------- */

TEST(wrong_addresses)
{
    static const char *const wrong[] = {"host", "host:", ":80", "host:0", "host:65536", "host:8x",
                                        "host:-1", "::1:80", "[::1", "[::1]80", "[]:80", "file:"};
    unsigned char bytes[ID];
    for (size_t i = 0; i < WB__COUNT(wrong); i++)
        for (int rank = 0; rank < 2; rank++) {
            const wb__rendezvous_options o = {wrong[i], rank, 2, 1};
            FAILS(wb__rendezvous(&o, bytes, ID), WB_ERROR_ARGUMENT, wrong[i], "HOST:PORT");
        }
    const wb__rendezvous_options none = {NULL, 0, 2, 1}, place = {"host:80", 2, 2, 1};
    const wb__rendezvous_options never = {"host:80", 0, 2, NAN}, at_once = {"host:80", 0, 2, 0};
    FAILS(wb__rendezvous(&never, bytes, ID), WB_ERROR_ARGUMENT, "nan");
    FAILS(wb__rendezvous(&at_once, bytes, ID), WB_ERROR_ARGUMENT, "time-out", "0 seconds");
    FAILS(wb__rendezvous(&none, bytes, ID), WB_ERROR_ARGUMENT, "WEBER_RENDEZVOUS");
    FAILS(wb__rendezvous(&place, bytes, ID), WB_ERROR_ARGUMENT, "rank 2 of 2");
    const wb__rendezvous_options nowhere = {"file:" WB_TEST_NOWHERE "/x", 0, 2, 1};
    FAILS(wb__rendezvous(&nowhere, bytes, ID), WB_ERROR_FILE, WB_TEST_NOWHERE "/x.0", "rank 0");
    const wb__rendezvous_options elsewhere = {"192.0.2.1:8000", 0, 2, 1};
    FAILS(wb__rendezvous(&elsewhere, bytes, ID), WB_ERROR_DEVICE, "192.0.2.1:8000", "rank 0");
    wb_clear_error();
}

/* ---- places ---------------------------------------------------------------------------------- */

static const char *const variables[] = {
    "WEBER_RANK", "WEBER_SIZE", "WEBER_LOCAL_RANK", "WEBER_LOCAL_SIZE", "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMI_RANK",
    "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "SLURM_PROCID", "SLURM_NTASKS",
    "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_NODEID"};

/* Reads the place with these variables, "A=1 B=2", and no others. */
static int place_of(const char *text, wb__place *p)
{
    char copy[500], *rest = copy;
    for (size_t i = 0; i < WB__COUNT(variables); i++) unsetenv(variables[i]);
    snprintf(copy, sizeof copy, "%s", text);
    for (char *word; (word = strtok_r(rest, " ", &rest));) {
        char *value = strchr(word, '=');
        *value++ = 0;
        setenv(word, value, 1);
    }
    wb_clear_error();
    return wb__launch_place(p);
}

static void expect_place(const char *text, int rank, int size, int local_rank, int local_size)
{
    wb__place p;
    if (place_of(text, &p)) fail_msg("%s: %s", text, wb_error());
    if (p.rank != rank || p.size != size || p.local_rank != local_rank ||
        p.local_size != local_size)
        fail_msg("%s: %d of %d, %d of %d", text, p.rank, p.size, p.local_rank, p.local_size);
}

#define WEBER_PLACE "WEBER_RANK=5 WEBER_SIZE=8 WEBER_LOCAL_RANK=1 WEBER_LOCAL_SIZE=4"
#define SLURM_PLACE "SLURM_PROCID=3 SLURM_NTASKS=7 SLURM_LOCALID=1"

TEST(places)
{
    expect_place(WEBER_PLACE, 5, 8, 1, 4);
    expect_place(WEBER_PLACE " PMI_RANK=0 PMI_SIZE=1 SLURM_PROCID=0 SLURM_NTASKS=9", 5, 8, 1, 4);
    expect_place(WEBER_PLACE " OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1", 5, 8, 1, 4);
    expect_place("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0"
                 " OMPI_COMM_WORLD_LOCAL_SIZE=1 SLURM_PROCID=0 SLURM_NTASKS=9", 1, 2, 0, 1);
    expect_place("PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=1 SLURM_PROCID=0",
                 1, 2, 0, 1);
    expect_place(SLURM_PLACE " PMI_RANK=3 PMI_SIZE=7 SLURM_STEP_TASKS_PER_NODE=7 SLURM_NODEID=0",
                 3, 7, 1, 7);
    expect_place(SLURM_PLACE " SLURM_TASKS_PER_NODE=2(x2),3 SLURM_NODEID=1", 3, 7, 1, 2);
    expect_place(SLURM_PLACE " SLURM_TASKS_PER_NODE=2(x2),3 SLURM_NODEID=2", 3, 7, 1, 3);
    expect_place(SLURM_PLACE " SLURM_TASKS_PER_NODE=1,2,4 SLURM_NODEID=2", 3, 7, 1, 4);
}

TEST(wrong_places)
{
    static const struct { const char *text, *fact, *other; } wrong[] = {
        {"", "WEBER_RANK", "weber launch"},
        {"WEBER_RANK=0", "WEBER_SIZE", "WEBER_RANK"},
        {"WEBER_SIZE=2", "WEBER_RANK", "WEBER_SIZE"},
        {"WEBER_RANK=0 WEBER_SIZE=2", "WEBER_LOCAL_SIZE", "WEBER_RANK"},
        {"WEBER_RANK=0 WEBER_SIZE=2 WEBER_LOCAL_SIZE=2", "WEBER_LOCAL_RANK", "WEBER_RANK"},
        {"WEBER_RANK=2 WEBER_SIZE=2", "WEBER_RANK", "2"},
        {"WEBER_RANK=-1 WEBER_SIZE=2", "WEBER_RANK", "-1"},
        {"WEBER_RANK=one WEBER_SIZE=2", "WEBER_RANK", "one"},
        {"WEBER_RANK=1x WEBER_SIZE=2", "WEBER_RANK", "1x"},
        {"WEBER_RANK=0 WEBER_SIZE=0", "WEBER_SIZE", "0"},
        {"WEBER_RANK=0 WEBER_SIZE=99999999999999999999", "WEBER_SIZE", "99999999999999999999"},
        {"WEBER_RANK=0 WEBER_SIZE=2 WEBER_LOCAL_SIZE=3", "WEBER_LOCAL_SIZE", "3"},
        {"WEBER_RANK=0 WEBER_SIZE=2 WEBER_LOCAL_SIZE=1 WEBER_LOCAL_RANK=1", "WEBER_LOCAL_RANK",
         "1"},
        {"PMI_RANK=0 PMI_SIZE=2 MPI_LOCALNRANKS=1", "MPI_LOCALRANKID", "PMI_RANK"},
        {SLURM_PLACE, "SLURM_TASKS_PER_NODE", "SLURM_PROCID"},
        {SLURM_PLACE " SLURM_TASKS_PER_NODE=2", "SLURM_NODEID", "SLURM_PROCID"},
        {SLURM_PLACE " SLURM_TASKS_PER_NODE=2(x2) SLURM_NODEID=2", "SLURM_TASKS_PER_NODE", "2"},
        {SLURM_PLACE " SLURM_TASKS_PER_NODE=2(x SLURM_NODEID=0", "SLURM_TASKS_PER_NODE", "2(x"},
        {SLURM_PLACE " SLURM_TASKS_PER_NODE=9 SLURM_NODEID=0", "SLURM_TASKS_PER_NODE", "9"}};
    for (size_t i = 0; i < WB__COUNT(wrong); i++) {
        wb__place p;
        FAILS(place_of(wrong[i].text, &p), WB_ERROR_ARGUMENT, wrong[i].fact, wrong[i].other);
    }
    wb_clear_error();
}

/* A rank of `weber launch`: prints the bytes of rank 0, as a number. */
static int be_launched(void)
{
    wb__place p = {0};
    int status = wb__launch_place(&p), number = p.rank == 0 ? 4711 : 0;
    const wb__rendezvous_options o = {getenv("WEBER_RENDEZVOUS"), p.rank, p.size, 20};
    if (!status) status = wb__rendezvous(&o, &number, sizeof number);
    if (status) fprintf(stderr, "%s\n", wb_error());
    else printf("%d\n", number);
    return status != 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "rank")) return be_launched();
    return run_cases(make_meeting, remove_folder);
}
