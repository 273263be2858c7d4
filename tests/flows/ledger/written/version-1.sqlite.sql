BEGIN TRANSACTION;
CREATE TABLE clusterdp_charges (
	id INTEGER NOT NULL, 
	population TEXT NOT NULL, 
	experiment TEXT NOT NULL, 
	period TEXT NOT NULL, 
	revision INTEGER NOT NULL, 
	slot TEXT, 
	epsilon TEXT NOT NULL, 
	delta TEXT NOT NULL, 
	state TEXT NOT NULL, 
	path TEXT NOT NULL, 
	draft TEXT, 
	host TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	rows_digest TEXT, 
	units_digest TEXT, 
	settings_digest TEXT, 
	PRIMARY KEY (id), 
	UNIQUE (slot)
);
INSERT INTO "clusterdp_charges" VALUES(1,'people','trial','reserved',1,'trial.reserved.r1','0.1','1e-09','reserved','/somewhere/releases/trial/trial.reserved.r1.duckdb','/somewhere/releases/trial/.draft-of-a-run','a-machine','2026-11-23 05:11:26.000000','k-1:rows reserved','k-1:units trial reserved','k-1:settings');
INSERT INTO "clusterdp_charges" VALUES(2,'people','trial','publishing',1,'trial.publishing.r1','0.1','1e-09','publishing','/somewhere/releases/trial/trial.publishing.r1.duckdb','/somewhere/releases/trial/.draft-of-a-run','a-machine','2026-11-23 05:11:27.000000','k-1:rows publishing','k-1:units trial publishing','k-1:settings');
INSERT INTO "clusterdp_charges" VALUES(3,'people','trial','published',1,'trial.published.r1','0.1','1e-09','published','/somewhere/releases/trial/trial.published.r1.duckdb','/somewhere/releases/trial/.draft-of-a-run','a-machine','2026-11-23 05:11:27.000000','k-1:rows published','k-1:units trial published','k-1:settings');
INSERT INTO "clusterdp_charges" VALUES(4,'people','trial','lost',1,'trial.lost.r1','0.1','1e-09','lost','/somewhere/releases/trial/trial.lost.r1.duckdb','/somewhere/releases/trial/.draft-of-a-run','a-machine','2026-11-23 05:11:27.000000','k-1:rows lost','k-1:units trial lost','k-1:settings');
INSERT INTO "clusterdp_charges" VALUES(5,'people','trial','void',1,NULL,'0.1','1e-09','void','/somewhere/releases/trial/trial.void.r1.duckdb','/somewhere/releases/trial/.draft-of-a-run','a-machine','2026-11-23 05:11:27.000000','k-1:rows void','k-1:units trial void','k-1:settings');
INSERT INTO "clusterdp_charges" VALUES(6,'people','winter','published',1,'winter.published.r1','0.25','0.0','published','/somewhere/releases/trial/winter.published.r1.duckdb','/somewhere/releases/trial/.draft-of-a-run','a-machine','2026-11-23 05:11:27.000000','k-1:rows published','k-1:units winter published','k-1:settings');
INSERT INTO "clusterdp_charges" VALUES(7,'others','trial@north','published',1,'trial@north.published.r1','4.0','0.0','published','/somewhere/releases/trial/trial@north.published.r1.duckdb','/somewhere/releases/trial/.draft-of-a-run','a-machine','2026-11-23 05:11:27.000000','k-1:rows published','k-1:units trial@north published','k-1:settings');
INSERT INTO "clusterdp_charges" VALUES(8,'people','trial','found',3,'trial.found.r3','0.7','0.0','published','/somewhere/releases/trial/trial.found.r3.duckdb',NULL,'a-machine','2026-11-23 05:11:27.000000',NULL,NULL,NULL);
CREATE TABLE clusterdp_ledger (
	version INTEGER NOT NULL, 
	PRIMARY KEY (version)
);
INSERT INTO "clusterdp_ledger" VALUES(1);
CREATE INDEX ix_clusterdp_charges_experiment ON clusterdp_charges (experiment);
CREATE INDEX ix_clusterdp_charges_units_digest ON clusterdp_charges (units_digest);
CREATE INDEX ix_clusterdp_charges_population ON clusterdp_charges (population);
COMMIT;
