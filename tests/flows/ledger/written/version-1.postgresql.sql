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
    settings_digest text
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
ALTER TABLE ONLY public.clusterdp_charges ALTER COLUMN id SET DEFAULT nextval('public.clusterdp_charges_id_seq'::regclass);
ALTER TABLE ONLY public.clusterdp_ledger ALTER COLUMN version SET DEFAULT nextval('public.clusterdp_ledger_version_seq'::regclass);
INSERT INTO public.clusterdp_charges VALUES (1, 'people', 'trial', 'reserved', 1, 'trial.reserved.r1', '0.1', '1e-09', 'reserved', '/somewhere/releases/trial/trial.reserved.r1.duckdb', '/somewhere/releases/trial/.draft-of-a-run', 'a-machine', '2026-11-23 05:11:30', 'k-1:rows reserved', 'k-1:units trial reserved', 'k-1:settings');
INSERT INTO public.clusterdp_charges VALUES (2, 'people', 'trial', 'publishing', 1, 'trial.publishing.r1', '0.1', '1e-09', 'publishing', '/somewhere/releases/trial/trial.publishing.r1.duckdb', '/somewhere/releases/trial/.draft-of-a-run', 'a-machine', '2026-11-23 05:11:30', 'k-1:rows publishing', 'k-1:units trial publishing', 'k-1:settings');
INSERT INTO public.clusterdp_charges VALUES (3, 'people', 'trial', 'published', 1, 'trial.published.r1', '0.1', '1e-09', 'published', '/somewhere/releases/trial/trial.published.r1.duckdb', '/somewhere/releases/trial/.draft-of-a-run', 'a-machine', '2026-11-23 05:11:30', 'k-1:rows published', 'k-1:units trial published', 'k-1:settings');
INSERT INTO public.clusterdp_charges VALUES (4, 'people', 'trial', 'lost', 1, 'trial.lost.r1', '0.1', '1e-09', 'lost', '/somewhere/releases/trial/trial.lost.r1.duckdb', '/somewhere/releases/trial/.draft-of-a-run', 'a-machine', '2026-11-23 05:11:30', 'k-1:rows lost', 'k-1:units trial lost', 'k-1:settings');
INSERT INTO public.clusterdp_charges VALUES (5, 'people', 'trial', 'void', 1, NULL, '0.1', '1e-09', 'void', '/somewhere/releases/trial/trial.void.r1.duckdb', '/somewhere/releases/trial/.draft-of-a-run', 'a-machine', '2026-11-23 05:11:30', 'k-1:rows void', 'k-1:units trial void', 'k-1:settings');
INSERT INTO public.clusterdp_charges VALUES (6, 'people', 'winter', 'published', 1, 'winter.published.r1', '0.25', '0.0', 'published', '/somewhere/releases/trial/winter.published.r1.duckdb', '/somewhere/releases/trial/.draft-of-a-run', 'a-machine', '2026-11-23 05:11:30', 'k-1:rows published', 'k-1:units winter published', 'k-1:settings');
INSERT INTO public.clusterdp_charges VALUES (7, 'others', 'trial@north', 'published', 1, 'trial@north.published.r1', '4.0', '0.0', 'published', '/somewhere/releases/trial/trial@north.published.r1.duckdb', '/somewhere/releases/trial/.draft-of-a-run', 'a-machine', '2026-11-23 05:11:30', 'k-1:rows published', 'k-1:units trial@north published', 'k-1:settings');
INSERT INTO public.clusterdp_charges VALUES (8, 'people', 'trial', 'found', 3, 'trial.found.r3', '0.7', '0.0', 'published', '/somewhere/releases/trial/trial.found.r3.duckdb', NULL, 'a-machine', '2026-11-23 05:11:31', NULL, NULL, NULL);
INSERT INTO public.clusterdp_ledger VALUES (1);
SELECT pg_catalog.setval('public.clusterdp_charges_id_seq', 8, true);
SELECT pg_catalog.setval('public.clusterdp_ledger_version_seq', 1, false);
ALTER TABLE ONLY public.clusterdp_charges
    ADD CONSTRAINT clusterdp_charges_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.clusterdp_charges
    ADD CONSTRAINT clusterdp_charges_slot_key UNIQUE (slot);
ALTER TABLE ONLY public.clusterdp_ledger
    ADD CONSTRAINT clusterdp_ledger_pkey PRIMARY KEY (version);
CREATE INDEX ix_clusterdp_charges_experiment ON public.clusterdp_charges USING btree (experiment);
CREATE INDEX ix_clusterdp_charges_population ON public.clusterdp_charges USING btree (population);
CREATE INDEX ix_clusterdp_charges_units_digest ON public.clusterdp_charges USING btree (units_digest);
