COMMENT ON SCHEMA public IS '';
CREATE TABLE public.clusterdp_charges (
    id integer NOT NULL,
    population text NOT NULL,
    experiment text NOT NULL,
    period text NOT NULL,
    revision integer NOT NULL,
    slot text,
    epsilon text NOT NULL,
    delta text NOT NULL,
    state text NOT NULL,
    path text NOT NULL,
    draft text,
    host text NOT NULL,
    created_at timestamp without time zone NOT NULL,
    rows_digest text,
    units_digest text,
    settings_digest text,
    roster text,
    most_epsilon text,
    most_delta text,
    file_sha256 text,
    withdrawn text,
    withdrawn_at timestamp without time zone,
    pruned_at timestamp without time zone,
    versions text
);
CREATE SEQUENCE public.clusterdp_charges_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.clusterdp_charges_id_seq OWNED BY public.clusterdp_charges.id;
CREATE TABLE public.clusterdp_ends (
    run text NOT NULL,
    experiment text NOT NULL,
    period text NOT NULL,
    state text NOT NULL,
    reason text,
    at text NOT NULL,
    host text NOT NULL,
    folder text,
    release_id text,
    seconds bigint,
    n_units bigint,
    n_read bigint,
    sample_ratio_p text,
    set_aside text NOT NULL
);
CREATE TABLE public.clusterdp_files (
    path text NOT NULL,
    sha256 text NOT NULL,
    experiment text NOT NULL,
    host text NOT NULL,
    stamp text NOT NULL
);
CREATE TABLE public.clusterdp_ledger (
    version integer NOT NULL
);
CREATE SEQUENCE public.clusterdp_ledger_version_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.clusterdp_ledger_version_seq OWNED BY public.clusterdp_ledger.version;
CREATE TABLE public.clusterdp_notices (
    experiment text NOT NULL,
    period text NOT NULL,
    event text NOT NULL,
    sent_at text NOT NULL
);
CREATE TABLE public.clusterdp_populations (
    population text NOT NULL,
    key_fingerprint text NOT NULL
);
CREATE TABLE public.clusterdp_register_pieces (
    name text NOT NULL,
    piece integer NOT NULL,
    words bytea NOT NULL
);
CREATE TABLE public.clusterdp_registers (
    name text NOT NULL,
    population text NOT NULL,
    key_fingerprint text NOT NULL,
    n_words bigint NOT NULL,
    checksum text NOT NULL,
    histories text NOT NULL,
    charges text
);
ALTER TABLE ONLY public.clusterdp_charges ALTER COLUMN id SET DEFAULT nextval('public.clusterdp_charges_id_seq'::regclass);
ALTER TABLE ONLY public.clusterdp_ledger ALTER COLUMN version SET DEFAULT nextval('public.clusterdp_ledger_version_seq'::regclass);
INSERT INTO public.clusterdp_charges VALUES (1, 'people', 'trial', 'reserved', 1, 'trial.reserved.r1', '0.1', '1e-09', 'reserved', '/somewhere/releases/trial/trial.reserved.r1.duckdb', '/somewhere/releases/trial/.draft-of-a-run', 'a-machine', '2026-11-27 12:35:09', 'k-1:rows reserved', 'k-1:units trial reserved', 'k-1:settings', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"source.table": "5d0b 17", "source.outcomes_table": "c2a1 0"}');
INSERT INTO public.clusterdp_charges VALUES (2, 'people', 'trial', 'publishing', 1, 'trial.publishing.r1', '0.1', '1e-09', 'publishing', '/somewhere/releases/trial/trial.publishing.r1.duckdb', '/somewhere/releases/trial/.draft-of-a-run', 'a-machine', '2026-11-27 12:35:09', 'k-1:rows publishing', 'k-1:units trial publishing', 'k-1:settings', NULL, NULL, NULL, 'dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd', NULL, NULL, NULL, '{"source.table": "5d0b 17", "source.outcomes_table": "c2a1 0"}');
INSERT INTO public.clusterdp_charges VALUES (4, 'people', 'trial', 'lost', 1, 'trial.lost.r1', '0.1', '1e-09', 'lost', '/somewhere/releases/trial/trial.lost.r1.duckdb', '/somewhere/releases/trial/.draft-of-a-run', 'a-machine', '2026-11-27 12:35:10', 'k-1:rows lost', 'k-1:units trial lost', 'k-1:settings', NULL, NULL, NULL, 'dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd', NULL, NULL, NULL, '{"source.table": "5d0b 17", "source.outcomes_table": "c2a1 0"}');
INSERT INTO public.clusterdp_charges VALUES (5, 'people', 'trial', 'void', 1, NULL, '0.1', '1e-09', 'void', '/somewhere/releases/trial/trial.void.r1.duckdb', '/somewhere/releases/trial/.draft-of-a-run', 'a-machine', '2026-11-27 12:35:10', 'k-1:rows void', 'k-1:units trial void', 'k-1:settings', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"source.table": "5d0b 17", "source.outcomes_table": "c2a1 0"}');
INSERT INTO public.clusterdp_charges VALUES (9, 'people', 'nights', 'a', 1, 'nights.a.r1', '0.5', '0.0', 'published', '/somewhere/releases/trial/nights.a.r1.duckdb', NULL, 'a-machine', '2026-11-27 12:35:10', 'k:nights a', 'k:units of a', 'k:s', 'c9022680f888674e-9', '0.5', '0.0', NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.clusterdp_charges VALUES (7, 'others', 'trial@north', 'published', 1, 'trial@north.published.r1', '4.0', '0.0', 'published', '/somewhere/releases/trial/trial@north.published.r1.duckdb', '/somewhere/releases/trial/.draft-of-a-run', 'a-machine', '2026-11-27 12:35:10', 'k-1:rows published', 'k-1:units trial@north published', 'k-1:settings', NULL, NULL, NULL, 'dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd', NULL, NULL, NULL, '{"source.table": "5d0b 17", "source.outcomes_table": "c2a1 0"}');
INSERT INTO public.clusterdp_charges VALUES (8, 'people', 'trial', 'found', 3, 'trial.found.r3', '0.7', '0.0', 'published', '/somewhere/releases/trial/trial.found.r3.duckdb', NULL, 'a-machine', '2026-11-27 12:35:10', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.clusterdp_charges VALUES (3, 'people', 'trial', 'published', 1, 'trial.published.r1', '0.1', '1e-09', 'published', '/somewhere/releases/trial/trial.published.r1.duckdb', '/somewhere/releases/trial/.draft-of-a-run', 'a-machine', '2026-11-27 12:35:09', 'k-1:rows published', 'k-1:units trial published', 'k-1:settings', NULL, NULL, NULL, 'dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd', 'wrong prices', '2026-11-20 03:15:00', NULL, '{"source.table": "5d0b 17", "source.outcomes_table": "c2a1 0"}');
INSERT INTO public.clusterdp_charges VALUES (6, 'people', 'winter', 'published', 1, 'winter.published.r1', '0.25', '0.0', 'published', '/somewhere/releases/trial/winter.published.r1.duckdb', '/somewhere/releases/trial/.draft-of-a-run', 'a-machine', '2026-11-27 12:35:10', 'k-1:rows published', 'k-1:units winter published', 'k-1:settings', NULL, NULL, NULL, 'dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd', NULL, NULL, '2026-11-20 03:15:00', '{"source.table": "5d0b 17", "source.outcomes_table": "c2a1 0"}');
INSERT INTO public.clusterdp_charges VALUES (10, 'people', 'nights', 'b', 1, 'nights.b.r1', '0.5', '0.0', 'published', '/somewhere/releases/trial/nights.b.r1.duckdb', NULL, 'a-machine', '2026-11-27 12:35:10', 'k:nights b', 'k:units of b', 'k:s', 'c9022680f888674e-10', '1.0', '0.0', NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.clusterdp_charges VALUES (11, 'people', 'nights', 'c', 1, 'nights.c.r1', '0.5', '0.0', 'reserved', '/somewhere/releases/trial/nights.c.r1.duckdb', NULL, 'a-machine', '2026-11-27 12:35:10', 'k:nights c', 'k:units of c', 'k:s', 'c9022680f888674e-11', '0.5', '0.0', NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.clusterdp_charges VALUES (12, 'people', 'nights', 'd', 1, NULL, '0.5', '0.0', 'void', '/somewhere/releases/trial/nights.d.r1.duckdb', NULL, 'a-machine', '2026-11-27 12:35:10', 'k:nights d', 'k:units of d', 'k:s', NULL, '0.5', '0.0', NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.clusterdp_ends VALUES ('000000000001', 'trial', 'published', 'failed', NULL, '2026-11-01T04:15:00+00:00', 'unknown', NULL, NULL, NULL, NULL, NULL, NULL, '{}');
INSERT INTO public.clusterdp_ends VALUES ('000000000002', 'trial', 'published', 'published', NULL, '2026-11-02T04:15:00+00:00', 'unknown', NULL, 'trial.published.r1', 7, 160, 161, '0.25', '{"unit_missing": 1}');
INSERT INTO public.clusterdp_ends VALUES ('trial.2026-11-03', 'trial', '2026-11-03', 'refused', 'why it is refused', '2026-11-03T04:15:00+00:00', 'a-machine', NULL, NULL, NULL, NULL, NULL, NULL, '{}');
INSERT INTO public.clusterdp_ends VALUES ('trial.2026-11-04', 'trial', '2026-11-04', 'no_file', 'why it is no_file', '2026-11-04T04:15:00+00:00', 'a-machine', NULL, NULL, NULL, NULL, NULL, NULL, '{}');
INSERT INTO public.clusterdp_ends VALUES ('trial.2026-11-05', 'trial', '2026-11-05', 'failed', 'why it is failed', '2026-11-05T04:15:00+00:00', 'a-machine', NULL, NULL, NULL, NULL, NULL, NULL, '{}');
INSERT INTO public.clusterdp_ends VALUES ('000000000006', 'trial', '2026-11-06', 'running', NULL, '2026-11-06T03:15:00+00:00', 'a-machine', '/somewhere/releases/trial/.draft-000000000006-of-a-run', NULL, NULL, NULL, NULL, NULL, '{}');
INSERT INTO public.clusterdp_ends VALUES ('000000000008', 'trial', 'found', 'published', NULL, '2026-11-07T04:15:00+00:00', 'unknown', NULL, 'trial.found.r3', NULL, NULL, NULL, NULL, '{}');
INSERT INTO public.clusterdp_ends VALUES ('000000000009', 'trial', '2026-11-09', 'failed', NULL, '2026-11-09T04:15:00+00:00', 'unknown', NULL, NULL, NULL, NULL, NULL, NULL, '{}');
INSERT INTO public.clusterdp_ends VALUES ('trial.2026-11-10', 'trial', '2026-11-10', 'failed', 'before there were runs', '2026-11-10T04:15:00+00:00', 'a-machine', NULL, NULL, NULL, NULL, NULL, NULL, '{}');
INSERT INTO public.clusterdp_ledger VALUES (5);
INSERT INTO public.clusterdp_notices VALUES ('trial', '2026-11-03', 'refused', '2026-11-03T03:15:00+00:00');
INSERT INTO public.clusterdp_populations VALUES ('people', '73737373737373737373737373737373');
INSERT INTO public.clusterdp_register_pieces VALUES ('c9022680f888674e-9', 0, '\x0100c042fb702354013052612dca92890260306d5c7545ce');
INSERT INTO public.clusterdp_register_pieces VALUES ('c9022680f888674e-10', 0, '\x0200c042fb70235401e0ad50ddb4bf6c0160306d5c7545ce');
INSERT INTO public.clusterdp_register_pieces VALUES ('c9022680f888674e-10-2', 0, '\x0300c042fb70235401e0ad50ddb4bf6c013052612dca92890360306d5c7545ce');
INSERT INTO public.clusterdp_register_pieces VALUES ('c9022680f888674e-11', 0, '\x0140fe35b0b3cd1d');
INSERT INTO public.clusterdp_registers VALUES ('c9022680f888674e-9', 'people', '2-canonical:73737373737373737373737373737373', 3, 'gmac:76b72b2d4670cdc98332664dc800392343a451d28ec623f59a92c114217d0fc4:fafd53065e4f7515fdaac14e61995e75', '{"ways": [["nights", "none", "0.5", "0.0"], ["nights", "mail", "0.5", "0.0"]], "histories": [[], [[0, 1]], [[1, 1]]], "met": null}', NULL);
INSERT INTO public.clusterdp_registers VALUES ('c9022680f888674e-10', 'people', '2-canonical:73737373737373737373737373737373', 3, 'gmac:a34b75f73ca3c0735c40c9414d24277d6774745924a3ca4a5c32f7a1e894e477:ea50c0d46469a14f96c77188dc1333c9', '{"ways": [["nights", "none", "0.5", "0.0"], ["nights", "mail", "0.5", "0.0"]], "histories": [[], [[0, 1]], [[1, 1]]], "met": [2, 3]}', NULL);
INSERT INTO public.clusterdp_registers VALUES ('c9022680f888674e-10-2', 'people', '2-canonical:73737373737373737373737373737373', 4, 'gmac:e11932bac673590e13ea06602ac9a001087c579166764b44dcdda18b6a40679b:f34ac841e9f2dc16e54d2eb037c54ed3', '{"ways": [["nights", "none", "0.5", "0.0"], ["nights", "mail", "0.5", "0.0"]], "histories": [[], [[0, 1]], [[1, 1]], [[1, 1], [0, 1]]], "met": null}', '[9, 10]');
INSERT INTO public.clusterdp_registers VALUES ('c9022680f888674e-11', 'people', '2-canonical:73737373737373737373737373737373', 1, 'gmac:c7b6256de1a7dd0cafae20ab31eb39f321757208294021faf83d180a7c074ec8:d21067ad2e142a9788124bdf05454b4b', '{"ways": [["nights", "none", "0.5", "0.0"], ["nights", "mail", "0.5", "0.0"]], "histories": [[], [[0, 1]], [[1, 1]]], "met": [0, 1]}', NULL);
SELECT pg_catalog.setval('public.clusterdp_charges_id_seq', 12, true);
SELECT pg_catalog.setval('public.clusterdp_ledger_version_seq', 1, false);
ALTER TABLE ONLY public.clusterdp_charges
    ADD CONSTRAINT clusterdp_charges_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.clusterdp_charges
    ADD CONSTRAINT clusterdp_charges_slot_key UNIQUE (slot);
ALTER TABLE ONLY public.clusterdp_ends
    ADD CONSTRAINT clusterdp_ends_pkey PRIMARY KEY (run);
ALTER TABLE ONLY public.clusterdp_files
    ADD CONSTRAINT clusterdp_files_pkey PRIMARY KEY (path, sha256);
ALTER TABLE ONLY public.clusterdp_ledger
    ADD CONSTRAINT clusterdp_ledger_pkey PRIMARY KEY (version);
ALTER TABLE ONLY public.clusterdp_notices
    ADD CONSTRAINT clusterdp_notices_pkey PRIMARY KEY (experiment, period, event);
ALTER TABLE ONLY public.clusterdp_populations
    ADD CONSTRAINT clusterdp_populations_pkey PRIMARY KEY (population);
ALTER TABLE ONLY public.clusterdp_register_pieces
    ADD CONSTRAINT clusterdp_register_pieces_pkey PRIMARY KEY (name, piece);
ALTER TABLE ONLY public.clusterdp_registers
    ADD CONSTRAINT clusterdp_registers_pkey PRIMARY KEY (name);
CREATE INDEX ix_clusterdp_charges_experiment ON public.clusterdp_charges USING btree (experiment);
CREATE INDEX ix_clusterdp_charges_population ON public.clusterdp_charges USING btree (population);
CREATE INDEX ix_clusterdp_charges_roster ON public.clusterdp_charges USING btree (roster);
CREATE INDEX ix_clusterdp_charges_units_digest ON public.clusterdp_charges USING btree (units_digest);
CREATE INDEX ix_clusterdp_ends_experiment ON public.clusterdp_ends USING btree (experiment);
CREATE INDEX ix_clusterdp_files_experiment ON public.clusterdp_files USING btree (experiment);
CREATE INDEX ix_clusterdp_registers_population ON public.clusterdp_registers USING btree (population);
