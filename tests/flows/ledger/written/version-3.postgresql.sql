COMMENT ON SCHEMA public IS '';
CREATE TABLE public.clusterdp_attempts (
    experiment text NOT NULL,
    period text NOT NULL,
    state text NOT NULL,
    reason text,
    started_at timestamp without time zone NOT NULL,
    ended_at timestamp without time zone,
    host text NOT NULL,
    folder text
);
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
    pruned_at timestamp without time zone
);
CREATE SEQUENCE public.clusterdp_charges_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.clusterdp_charges_id_seq OWNED BY public.clusterdp_charges.id;
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
INSERT INTO public.clusterdp_attempts VALUES ('nights', 'b', 'published', NULL, '2026-11-23 05:55:18', '2026-11-23 05:55:18', 'a-machine', NULL);
INSERT INTO public.clusterdp_charges VALUES (1, 'people', 'trial', 'reserved', 1, 'trial.reserved.r1', '0.1', '1e-09', 'reserved', '/somewhere/releases/trial/trial.reserved.r1.duckdb', '/somewhere/releases/trial/.draft-of-a-run', 'a-machine', '2026-11-23 05:55:11', 'k-1:rows reserved', 'k-1:units trial reserved', 'k-1:settings', NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.clusterdp_charges VALUES (2, 'people', 'trial', 'publishing', 1, 'trial.publishing.r1', '0.1', '1e-09', 'publishing', '/somewhere/releases/trial/trial.publishing.r1.duckdb', '/somewhere/releases/trial/.draft-of-a-run', 'a-machine', '2026-11-23 05:55:11', 'k-1:rows publishing', 'k-1:units trial publishing', 'k-1:settings', NULL, NULL, NULL, 'dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd', NULL, NULL, NULL);
INSERT INTO public.clusterdp_charges VALUES (11, 'people', 'nights', 'c', 1, 'nights.c.r1', '0.5', '0.0', 'reserved', '/somewhere/releases/trial/nights.c.r1.duckdb', NULL, 'a-machine', '2026-11-23 05:55:17', 'k:nights c', 'k:units of c', 'k:s', 'c9022680f888674e-11', '0.5', '0.0', NULL, NULL, NULL, NULL);
INSERT INTO public.clusterdp_charges VALUES (3, 'people', 'trial', 'published', 1, 'trial.published.r1', '0.1', '1e-09', 'published', '/somewhere/releases/trial/trial.published.r1.duckdb', '/somewhere/releases/trial/.draft-of-a-run', 'a-machine', '2026-11-23 05:55:12', 'k-1:rows published', 'k-1:units trial published', 'k-1:settings', NULL, NULL, NULL, 'dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd', NULL, NULL, NULL);
INSERT INTO public.clusterdp_charges VALUES (4, 'people', 'trial', 'lost', 1, 'trial.lost.r1', '0.1', '1e-09', 'lost', '/somewhere/releases/trial/trial.lost.r1.duckdb', '/somewhere/releases/trial/.draft-of-a-run', 'a-machine', '2026-11-23 05:55:12', 'k-1:rows lost', 'k-1:units trial lost', 'k-1:settings', NULL, NULL, NULL, 'dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd', NULL, NULL, NULL);
INSERT INTO public.clusterdp_charges VALUES (5, 'people', 'trial', 'void', 1, NULL, '0.1', '1e-09', 'void', '/somewhere/releases/trial/trial.void.r1.duckdb', '/somewhere/releases/trial/.draft-of-a-run', 'a-machine', '2026-11-23 05:55:13', 'k-1:rows void', 'k-1:units trial void', 'k-1:settings', NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.clusterdp_charges VALUES (6, 'people', 'winter', 'published', 1, 'winter.published.r1', '0.25', '0.0', 'published', '/somewhere/releases/trial/winter.published.r1.duckdb', '/somewhere/releases/trial/.draft-of-a-run', 'a-machine', '2026-11-23 05:55:13', 'k-1:rows published', 'k-1:units winter published', 'k-1:settings', NULL, NULL, NULL, 'dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd', NULL, NULL, NULL);
INSERT INTO public.clusterdp_charges VALUES (12, 'people', 'nights', 'd', 1, NULL, '0.5', '0.0', 'void', '/somewhere/releases/trial/nights.d.r1.duckdb', NULL, 'a-machine', '2026-11-23 05:55:18', 'k:nights d', 'k:units of d', 'k:s', NULL, '0.5', '0.0', NULL, NULL, NULL, NULL);
INSERT INTO public.clusterdp_charges VALUES (7, 'others', 'trial@north', 'published', 1, 'trial@north.published.r1', '4.0', '0.0', 'published', '/somewhere/releases/trial/trial@north.published.r1.duckdb', '/somewhere/releases/trial/.draft-of-a-run', 'a-machine', '2026-11-23 05:55:14', 'k-1:rows published', 'k-1:units trial@north published', 'k-1:settings', NULL, NULL, NULL, 'dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd', NULL, NULL, NULL);
INSERT INTO public.clusterdp_charges VALUES (8, 'people', 'trial', 'found', 3, 'trial.found.r3', '0.7', '0.0', 'published', '/somewhere/releases/trial/trial.found.r3.duckdb', NULL, 'a-machine', '2026-11-23 05:55:14', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.clusterdp_charges VALUES (9, 'people', 'nights', 'a', 1, 'nights.a.r1', '0.5', '0.0', 'published', '/somewhere/releases/trial/nights.a.r1.duckdb', NULL, 'a-machine', '2026-11-23 05:55:15', 'k:nights a', 'k:units of a', 'k:s', 'c9022680f888674e-9', '0.5', '0.0', NULL, NULL, NULL, NULL);
INSERT INTO public.clusterdp_charges VALUES (10, 'people', 'nights', 'b', 1, 'nights.b.r1', '0.5', '0.0', 'published', '/somewhere/releases/trial/nights.b.r1.duckdb', NULL, 'a-machine', '2026-11-23 05:55:16', 'k:nights b', 'k:units of b', 'k:s', 'c9022680f888674e-10', '1.0', '0.0', NULL, NULL, NULL, NULL);
INSERT INTO public.clusterdp_ledger VALUES (3);
INSERT INTO public.clusterdp_populations VALUES ('people', '73737373737373737373737373737373');
INSERT INTO public.clusterdp_register_pieces VALUES ('c9022680f888674e-9', 0, '\x0100c042fb702354013052612dca92890260306d5c7545ce');
INSERT INTO public.clusterdp_register_pieces VALUES ('c9022680f888674e-10', 0, '\x0200c042fb70235401e0ad50ddb4bf6c0160306d5c7545ce');
INSERT INTO public.clusterdp_register_pieces VALUES ('c9022680f888674e-11', 0, '\x0140fe35b0b3cd1d');
INSERT INTO public.clusterdp_register_pieces VALUES ('c9022680f888674e-10-2', 0, '\x0300c042fb70235401e0ad50ddb4bf6c013052612dca92890360306d5c7545ce');
INSERT INTO public.clusterdp_registers VALUES ('c9022680f888674e-9', 'people', '73737373737373737373737373737373', 3, 'gmac:8a4e00c4a427de645a9c80940aa510ee351d627a7d933c86984cccf226fb1212:b84b6f73e25ab9c0c6d8f75cd6548c41', '{"ways": [["nights", "none", "0.5", "0.0"], ["nights", "mail", "0.5", "0.0"]], "histories": [[], [[0, 1]], [[1, 1]]]}', NULL);
INSERT INTO public.clusterdp_registers VALUES ('c9022680f888674e-10', 'people', '73737373737373737373737373737373', 3, 'gmac:e915978582834bfdb77b9f3571c3086b964890c35e89f1864ca1e083efeb0929:c5d2753949fe066d7c898fd3a933d509', '{"ways": [["nights", "none", "0.5", "0.0"], ["nights", "mail", "0.5", "0.0"]], "histories": [[], [[0, 1]], [[1, 1]]]}', NULL);
INSERT INTO public.clusterdp_registers VALUES ('c9022680f888674e-11', 'people', '73737373737373737373737373737373', 1, 'gmac:b10aa2c10779bd6371a65c10a6e933849c1074428e5c3acf421c94b19ac9c124:4b914713dcfd8ad1b975d9e6100a0124', '{"ways": [["nights", "none", "0.5", "0.0"], ["nights", "mail", "0.5", "0.0"]], "histories": [[], [[0, 1]], [[1, 1]]]}', NULL);
INSERT INTO public.clusterdp_registers VALUES ('c9022680f888674e-10-2', 'people', '73737373737373737373737373737373', 4, 'gmac:5ab010a263ebc4dc576a003d3d29d89565360a6f985f0b574c8a5ec6ec697180:9f870cd4db00f33ac1ba83d0ce7cddf1', '{"ways": [["nights", "none", "0.5", "0.0"], ["nights", "mail", "0.5", "0.0"]], "histories": [[], [[0, 1]], [[1, 1]], [[1, 1], [0, 1]]]}', '[9, 10]');
SELECT pg_catalog.setval('public.clusterdp_charges_id_seq', 12, true);
SELECT pg_catalog.setval('public.clusterdp_ledger_version_seq', 1, false);
ALTER TABLE ONLY public.clusterdp_attempts
    ADD CONSTRAINT clusterdp_attempts_pkey PRIMARY KEY (experiment, period);
ALTER TABLE ONLY public.clusterdp_charges
    ADD CONSTRAINT clusterdp_charges_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.clusterdp_charges
    ADD CONSTRAINT clusterdp_charges_slot_key UNIQUE (slot);
ALTER TABLE ONLY public.clusterdp_ledger
    ADD CONSTRAINT clusterdp_ledger_pkey PRIMARY KEY (version);
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
CREATE INDEX ix_clusterdp_registers_population ON public.clusterdp_registers USING btree (population);
